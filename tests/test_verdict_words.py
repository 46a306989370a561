import math
from types import SimpleNamespace

import pytest

from offline_summ.engines.verdict_words import word_probabilities
from offline_summ.errors import JudgeError


def tokens(**masses):
    entries = [SimpleNamespace(decoded_token=t, logprob=math.log(p)) for t, p in masses.items()]
    return [dict(enumerate([*entries, SimpleNamespace(decoded_token="(", logprob=-math.inf)]))]


def test_prefixes_and_cases_count_for_their_word():
    found = word_probabilities(tokens(Yes=0.3, Y=0.1, yes=0.1, YES=0.1, No=0.3, n=0.1), ("Yes", "No"))
    assert found == pytest.approx({"Yes": 0.6, "No": 0.4})


def test_the_words_of_any_number_add_up_to_one():
    found = word_probabilities(tokens(ent=0.5, contr=0.2, neutral=0.29), ("entail", "contradict", "neutral"))
    assert sum(found.values()) == pytest.approx(1)
    assert found["entail"] == pytest.approx(0.5 / 0.99)


def test_tokens_that_are_parts_of_characters_are_refused():
    with pytest.raises(JudgeError, match="do not tell the words 'はい' and 'いいえ' apart"):
        word_probabilities(tokens(**{"\ufffd": 0.7, "い": 0.3}), ("はい", "いいえ"))
