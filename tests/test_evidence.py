import pytest

from offline_summ.evidence import locate

TEXT = "Northwind Paper finished the rebuild\nof its mill in Linz on 14 March 2024. The work took a year."


@pytest.mark.parametrize(
    ("quote", "passage"),
    [
        ("mill in Linz", "mill in Linz"),
        ("  mill in Linz ", "mill in Linz"),
        ("the rebuild of its mill", "the rebuild\nof its mill"),
        ("finishd the rebuild of its mill in Linz", "finished the rebuild\nof its mill in Linz"),
        (
            "orthwind Papers finished the rebuild of its mil",
            "Northwind Paper finished the rebuild\nof its mill",
        ),
        ("the mill burned down in 1912", None),
        ("", None),
        ("a y", None),
        ("14", "14"),
        (TEXT + TEXT, None),
    ],
)
def test_a_quotation_gives_the_passage_that_it_quotes_or_nothing(quote, passage):
    found = locate(quote, TEXT, within="source")
    if passage is None:
        assert found is None
    else:
        assert (found.quote, TEXT[found.start : found.end]) == (passage, passage)


def test_a_quotation_may_be_a_little_longer_than_the_text():
    for text in ("The mill opened in 1912", "The mill opened in 1912 "):
        found = locate('"The mill opened in 1912."', text, within="summary")
        assert found.quote == text[found.start : found.end] == "The mill opened in 1912"


def test_a_short_quotation_is_found_where_it_is_a_word_or_in_a_script_without_spaces():
    assert locate("3 %", "It grew by 13 % in May, and by 3 % in June.", within="source").start == 31
    assert locate("王明", "是王明写的。", within="source").start == 1
    assert locate("art", "The party began.", within="source") is None


def test_offsets_count_characters_not_bytes():
    text = "🙂 製紙会社は3月14日に工場の改築を終えた。費用は6000万ユーロだった。"
    found = locate("費用は6000万ユーロ", text, within="summary")
    assert text[found.start : found.end] == found.quote == "費用は6000万ユーロ"
    near = locate("工場の改築を終えました。費用は6000万ユーロ", text, within="summary")
    assert near.quote == text[near.start : near.end]
    assert near.quote.startswith("工場の改築を終えた")


def test_a_quotation_is_found_in_a_long_text():
    text = "Nothing of note happened here. " * 20000 + TEXT
    assert locate("its mill in Linz on 14 March", text, within="source").start > 500000
