import json
import re

import pytest
from outlines.types.dsl import to_regex

from offline_summ.errors import ExampleError
from offline_summ.grammar import (
    claim_limit,
    coverage_grammar,
    judgement_grammar,
    question_ids,
    reason_grammar,
)

BOTH = judgement_grammar(axes="both", max_claims=2, max_questions=2)
CLAIM = '{"claim":"It rained.","supported":"yes","reason":"Line 1."}'


def allows(grammar, text):
    return re.fullmatch(to_regex(grammar.output_type()), text) is not None


def test_a_judgement_with_claims_and_questions_is_allowed_and_parsed():
    text = '{"claims":[' + CLAIM + '],"questions":["Did it rain?"]}'
    assert allows(BOTH, text)
    reply = BOTH.parse(text)
    assert (reply.claims[0].claim, reply.claims[0].supported) == ("It rained.", "yes")
    assert reply.questions == ("Did it rain?",)


@pytest.mark.parametrize(("claims", "allowed"), [(0, True), (1, True), (2, True), (3, False)])
def test_the_grammar_counts_claims(claims, allowed):
    text = '{"claims":[' + ",".join([CLAIM] * claims) + '],"questions":["Did it rain?"]}'
    assert allows(BOTH, text) is allowed


@pytest.mark.parametrize(("questions", "allowed"), [(0, False), (1, True), (2, True), (3, False)])
def test_the_grammar_counts_questions(questions, allowed):
    text = '{"claims":[],"questions":[' + ",".join(['"Rain?"'] * questions) + "]}"
    assert allows(BOTH, text) is allowed


def test_one_axis_alone_has_a_reply_without_the_other():
    alignment = judgement_grammar(axes="alignment", max_claims=1, max_questions=1)
    coverage = judgement_grammar(axes="coverage", max_claims=0, max_questions=1)
    assert allows(alignment, '{"claims":[' + CLAIM + "]}")
    assert allows(coverage, '{"questions":["Rain?"]}')
    assert not allows(alignment, '{"claims":[],"questions":["Rain?"]}')
    assert not allows(coverage, '{"claims":[],"questions":["Rain?"]}')


@pytest.mark.parametrize(
    "text",
    [
        '{"claims": [],"questions":["Rain?"]}',
        '{"claims":[],"questions":["Rain?"]} ',
        '{"claims":[],"questions":[""]}',
        '{"claims":[],"questions":[" Rain?"]}',
        '{"claims":[],"questions":["..."]}',
        '{"claims":[],"questions":["Rain? "]}',
        '{"claims":[],"questions":["Did  it?"]}',
        '{"claims":[],"questions":["Did\nit?"]}',
        '{"claims":[],"questions":["Did\\nit?"]}',
        '{"questions":["Rain?"],"claims":[]}',
    ],
)
def test_no_free_whitespace_no_control_characters_no_other_order(text):
    assert not allows(BOTH, text)


@pytest.mark.parametrize(
    "text", ["雨が降りましたか。", "下雨了吗？", "هل أمطرت؟", "Rain 🌧️?", 'Say \\"yes\\"?', "a\\\\b"]
)
def test_every_script_passes_and_comes_back_unchanged(text):
    reply = f'{{"claims":[],"questions":["{text}"]}}'
    assert allows(BOTH, reply)
    assert BOTH.parse(reply).questions == (json.loads(f'"{text}"'),)


def test_coverage_has_each_id_once_and_in_order():
    grammar = coverage_grammar(2)
    one = '"q1":{"answered":"no","reason":"Absent."}'
    two = '"q2":{"answered":"yes","reason":"There."}'
    assert allows(grammar, "{" + one + "," + two + "}")
    for wrong in ("{" + one + "}", "{" + two + "," + one + "}", "{" + one + "," + two + "," + two + "}"):
        assert not allows(grammar, wrong)
    assert grammar.parse("{" + one + "," + two + "}").answers["q1"].answered == "no"


def test_ids_begin_at_q1():
    assert question_ids(3) == ("q1", "q2", "q3")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not JSON",
        "[]",
        "null",
        '{"claims":[]}',
        '{"claims":[],"questions":["A?"],"more":1}',
        '{"claims":[{"claim":"SECRET","supported":"maybe","reason":"R"}],"questions":["A?"]}',
        '{"claims":[{"claim":"SECRET","supported":true,"reason":"R"}],"questions":["A?"]}',
        '{"claims":[],"questions":["SECRET"],"questions":["B?"]}',
        '{"claims":[],"questions":["   "]}',
        '{"claims":[],"questions":["SECRET',
        "[" * 100_000,
    ],
)
def test_a_reply_of_another_form_is_an_invalid_reply_that_quotes_nothing(text):
    with pytest.raises(ExampleError) as caught:
        BOTH.parse(text)
    assert caught.value.kind == "invalid_reply"
    assert "SECRET" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_invalid_reply_says_where():
    with pytest.raises(ExampleError, match=r"at claims\.0\.supported"):
        BOTH.parse('{"claims":[{"claim":"C","supported":"maybe","reason":"R"}],"questions":["A?"]}')


def test_a_reason_is_one_text():
    assert allows(reason_grammar(), '{"reason":"The claims decide."}')
    assert reason_grammar().parse('{"reason":"The claims decide."}').reason == "The claims decide."


@pytest.mark.parametrize(
    ("summary", "limit"),
    [("", 4), ("Rain.", 4), ("word " * 24, 4), ("word " * 25, 8), ("word " * 100, 12), ("word " * 5000, 64)],
)
def test_the_limit_of_claims_follows_the_length_of_the_summary(summary, limit):
    assert claim_limit(summary) == limit


def test_japanese_counts_two_characters_a_word():
    assert claim_limit("雨" * 200) == claim_limit("word " * 100) == 12


def test_equal_grammars_share_one_name():
    same = judgement_grammar(axes="both", max_claims=2, max_questions=2)
    assert same is BOTH
    assert judgement_grammar(axes="both", max_claims=4, max_questions=2).name != BOTH.name
