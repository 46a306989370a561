import pytest

from offline_summ.nearest import NearestPassages

TEXT = (
    "The mill in Linz opened in 1912. Anna Berg ran it for thirty years. It had forty workers. "
    "A fire damaged the roof in 1950. It closed in 1980."
)


def test_the_sentences_nearest_to_an_item_come_in_the_order_of_the_text():
    nearest = NearestPassages(TEXT, count=2)
    assert nearest.of("A fire in Linz damaged the roof") == (
        "The mill in Linz opened in 1912. A fire damaged the roof in 1950."
    )


@pytest.mark.parametrize("text", ["", "One. Two."])
def test_a_text_that_has_no_more_sentences_needs_none_picked(text):
    assert NearestPassages(text, count=2).of("One") is None


def test_japanese_is_searched_without_spaces():
    text = "工場は三月に再開した。従業員は四十人である。費用は六千万ユーロだった。社長は交代した。"
    assert NearestPassages(text, count=1).of("費用はいくらか") == "費用は六千万ユーロだった。"


def test_an_item_that_shares_nothing_gives_the_first_sentences():
    assert NearestPassages(TEXT, count=1).of("🙂") == "The mill in Linz opened in 1912."


def test_an_overlong_sentence_is_cut_into_pieces():
    text = "word " * 2000 + "Linz " + "word " * 2000
    found = NearestPassages(text, count=1).of("Linz")
    assert "Linz" in found
    assert len(found) <= 400
