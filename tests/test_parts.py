import pytest

from offline_summ.parts import parts_of, word_count


def test_a_short_text_is_one_part():
    assert parts_of("One sentence. Another one.", words=250, at_most=8) == ["One sentence. Another one."]


@pytest.mark.parametrize(
    "sentence", ["A house number {n} stands there. ", "{n}番地に家がある。", "line {n} of it\n"]
)
def test_parts_are_about_equal_and_nothing_is_lost(sentence):
    text = "".join(sentence.format(n=n) for n in range(300))
    parts = parts_of(text, words=100, at_most=5)
    assert len(parts) == 5
    assert "".join("".join(parts).split()) == "".join(text.split())
    lengths = [word_count(part) for part in parts]
    assert max(lengths) < 1.1 * min(lengths)


@pytest.mark.parametrize(
    "text", ["word " * 3000, "राम घर जाता है। " * 400, "متى وصل أحمد؟ " * 400, "字" * 4000]
)
def test_a_text_of_any_writing_is_cut_into_parts_of_like_length(text):
    parts = parts_of(text, words=100, at_most=8)
    assert len(parts) == 8
    assert "".join("".join(parts).split()) == "".join(text.split())
    lengths = [word_count(part) for part in parts]
    assert max(lengths) <= 2 * min(lengths)


def test_a_very_long_sentence_leaves_no_blank_part():
    parts = parts_of("Short. " + "long " * 1000 + "end. Short. Short.", words=10, at_most=8)
    assert all(parts)
    assert len(parts) >= 2


@pytest.mark.parametrize("text", ["", " \n "])
def test_a_blank_text_is_one_blank_part(text):
    assert parts_of(text, words=10, at_most=3) == [""]


def test_two_japanese_characters_count_as_one_word():
    assert word_count("工場 mill 改築") == 3
