"""Where a cut reply goes on: at every character of many replies, whatever the judge writes then."""

import json
import random
import re

import pytest
from outlines.types.dsl import to_regex

from offline_summ.grammar import (
    CLAIM,
    coverage_grammar,
    explanation_grammar,
    judgement_grammar,
    piece,
    reason_grammar,
    verdict_grammar,
)
from offline_summ.reply_form import Fixed, Items, Text, Word, _OneMore, is_at_limit, resume

CLAIMS = judgement_grammar(axes="alignment", max_claims=3, max_questions=1)
BOTH = judgement_grammar(axes="both", max_claims=3, max_questions=3)
QUESTIONS = judgement_grammar(axes="coverage", max_claims=0, max_questions=3)
GRAMMARS = (
    CLAIMS,
    BOTH,
    QUESTIONS,
    coverage_grammar(1),
    coverage_grammar(4),
    reason_grammar(),
    verdict_grammar(reason_first=True),
    verdict_grammar(reason_first=False),
)
TEXTS = (
    '"It rained."',
    '"a\\\\"',
    '"say \\"yes\\" or \\"no\\""',
    '"雨　が"',
    '"}],{"',
    '"🌧️ é"',
    '"\\"supported\\":\\"yes\\""',
)


def written(form, chance):
    """A reply of this form as some judge may write it."""
    pieces = []
    for part in form:
        match part:
            case Fixed(text):
                pieces.append(text)
            case Word(words):
                pieces.append(chance.choice(words))
            case Text():
                pieces.append(chance.choice(TEXTS))
            case Items(_, item, at_least, at_most):
                count = chance.randint(at_least, at_most)
                pieces.append(",".join(written(item, chance) for _ in range(count)))
            case _OneMore(item, end):
                pieces.append(chance.choice(["," + written(item, chance), end]))
    return "".join(pieces)


def finished(grammar, reply, chance, *, more):
    """Go on with a cut reply to its end; return the whole and the spans that a judge wrote."""
    spans, begun = [(0, len(reply))], None
    for _ in range(40):
        resumption = resume(grammar.form, reply, more=more)
        if resumption is None:
            return None, spans
        assert resumption.kept != begun, "no progress"
        begun = resumption.kept
        if not resumption.following:
            return begun, spans
        added = written(resumption.following, chance)
        assert re.fullmatch(to_regex(piece(resumption.following).output_type()), added)
        spans.append((len(begun), len(begun) + len(added)))
        reply = begun + added
    raise AssertionError("never ends")


@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: grammar.name)
@pytest.mark.parametrize("more", [True, False])
def test_a_reply_cut_anywhere_ends_as_a_reply_whose_verdicts_are_the_judges(grammar, more):
    chance = random.Random(1)
    for _ in range(12):
        reply = written(grammar.form, chance)
        assert re.fullmatch(to_regex(grammar.output_type()), reply)
        for end in range(len(reply) + 1):
            whole, spans = finished(grammar, reply[:end], chance, more=more)
            if whole is None:
                assert grammar in (CLAIMS, BOTH, QUESTIONS)
                continue
            grammar.parse(whole)
            assert re.fullmatch(to_regex(grammar.output_type()), whole)
            for verdict in re.finditer(r'"(?:supported|answered|verdict)":"(yes|no)"', whole):
                # Its first letter decides; the grammar spells the rest.
                assert any(low <= verdict.start(1) < high for low, high in spans)


@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: grammar.name)
def test_a_whole_reply_is_kept_as_it_is(grammar):
    reply = written(grammar.form, random.Random(2))
    resumption = resume(grammar.form, reply)
    assert (resumption.kept, resumption.following, resumption.cut) == (reply, (), frozenset())


ITEM = '{"claim":"A.","supported":"yes","reason":"R."}'
SECOND = '{"claim":"B.","supported":"no","reason":"S."}'


@pytest.mark.parametrize(
    ("reply", "kept", "cut"),
    [
        # The claim is not all there: it is dropped, and the list ends.
        ('{"claims":[' + ITEM + ',{"claim":"B', '{"claims":[' + ITEM + "]}", {"claims"}),
        ('{"claims":[' + ITEM + ",", '{"claims":[' + ITEM + "]}", {"claims"}),
        ('{"claims":[' + ITEM + ',{"cla', '{"claims":[' + ITEM + "]}", {"claims"}),
        # The claim is all there: its verdict is still to be decided.
        ('{"claims":[{"claim":"A."', '{"claims":[{"claim":"A.","supported":"', set()),
        ('{"claims":[{"claim":"A.","suppor', '{"claims":[{"claim":"A.","supported":"', set()),
        (
            '{"claims":[{"claim":"A.","supported":"n',
            '{"claims":[{"claim":"A.","supported":"no","reason":',
            set(),
        ),
        # The verdict is there, the reason is not: what there is of it is kept.
        (
            '{"claims":[{"claim":"A.","supported":"no","reason":"It sa',
            '{"claims":[{"claim":"A.","supported":"no","reason":"It sa"}]}',
            {"claims", "reasons"},
        ),
        (
            '{"claims":[{"claim":"A.","supported":"no","reason":"It \\',
            '{"claims":[{"claim":"A.","supported":"no","reason":"It"}]}',
            {"claims", "reasons"},
        ),
        (
            '{"claims":[{"claim":"A.","supported":"no","reason":"',
            '{"claims":[{"claim":"A.","supported":"no","reason":',
            set(),
        ),
        # All three items are there, so that the list is whole.
        (
            '{"claims":[' + ",".join([ITEM] * 3),
            '{"claims":[' + ",".join([ITEM] * 3) + "]}",
            set(),
        ),
        ('{"claims":[]', '{"claims":[]}', set()),
    ],
)
def test_what_is_kept_of_a_list_that_may_get_no_more(reply, kept, cut):
    resumption = resume(CLAIMS.form, reply, more=False)
    assert (resumption.kept, resumption.cut) == (kept, cut)


def test_a_list_that_may_get_more_asks_for_one_more_item_or_its_end():
    resumption = resume(CLAIMS.form, '{"claims":[' + ITEM, more=True)
    (following,) = resumption.following
    pattern = to_regex(piece(resumption.following).output_type())
    assert following == _OneMore(CLAIMS.form[1].item, "]}")
    assert re.fullmatch(pattern, "," + SECOND)
    assert re.fullmatch(pattern, "]}")
    assert not re.fullmatch(pattern, SECOND)


@pytest.mark.parametrize(
    "reply", ['{"claims":[{"claim":"A', '{"claims":[{"claim":"A and so', '{"claims":[{"claim":"\\"']
)
def test_without_one_whole_item_a_cut_text_cannot_go_on(reply):
    assert resume(CLAIMS.form, reply, more=True) is None
    assert resume(BOTH.form, reply, more=False) is None


def test_the_questions_are_still_asked_for_after_the_claims_were_cut():
    resumption = resume(BOTH.form, '{"claims":[' + ITEM + ',{"claim":"B', more=False)
    assert resumption.kept == '{"claims":[' + ITEM + '],"questions":['
    pattern = to_regex(piece(resumption.following).output_type())
    assert re.fullmatch(pattern, '"Rain?","Snow?"]}')
    assert not re.fullmatch(pattern, "]}")


def test_every_question_gets_its_own_verdict_after_a_cut():
    resumption = resume(coverage_grammar(3).form, '{"q1":{"answered":"yes","reason":"Be', more=False)
    assert resumption.kept == '{"q1":{"answered":"yes","reason":"Be"},"q2":{"answered":"'
    assert re.fullmatch(to_regex(piece(resumption.following).output_type()), 'no","reason":"Absent."')


def test_the_pieces_of_large_and_small_grammars_are_the_same_few():
    large, small = coverage_grammar(40).pieces(), coverage_grammar(2).pieces()
    assert set(large) == set(small)
    assert len(large) == 2


@pytest.mark.parametrize(
    ("grammar", "reply"),
    [
        (CLAIMS, "x"),
        (CLAIMS, '{"claims": ['),
        (CLAIMS, '{"claims":[' + ",".join([ITEM] * 4)),
        (CLAIMS, '{"claims":[]}x'),
        (CLAIMS, '{"claims":[{"claim":"two  spaces'),
        (CLAIMS, '{"claims":[{"claim":"a\n'),
        (QUESTIONS, '{"questions":[]'),
        (coverage_grammar(2), '{"q1":{"answered":"maybe'),
        (coverage_grammar(2), '{"q2":'),
    ],
)
def test_what_is_no_beginning_of_a_reply_is_refused(grammar, reply):
    with pytest.raises(ValueError, match=r"character|end"):
        resume(grammar.form, reply)


@pytest.mark.parametrize("space", [c for c in map(chr, range(0x110000)) if c.isspace()])
def test_no_text_begins_or_ends_with_a_space_of_any_kind_and_every_text_parses(space):
    pattern = re.compile(to_regex(reason_grammar().output_type()))
    for text in (space, f"{space}x", f"x{space}", f"x{space}{space}y"):
        assert not pattern.fullmatch(f'{{"reason":"{text}"}}')
    between = f'{{"reason":"x{space}y"}}'
    if pattern.fullmatch(between):
        assert reason_grammar().parse(between).reason == f"x{space}y"
    else:
        assert not space.isprintable() or space in "\u2028\u2029"


def test_texts_can_be_bounded_by_the_grammar():
    free, bounded = (re.compile(to_regex(piece((CLAIM,)).output_type(bounded=b))) for b in (False, True))
    for length, allowed in ((1, True), (CLAIM.max_characters, True), (CLAIM.max_characters + 1, False)):
        text = json.dumps("é" * length, ensure_ascii=False)
        assert free.fullmatch(text)
        assert bool(bounded.fullmatch(text)) is allowed


def test_a_text_at_its_limit_may_have_been_ended_by_the_grammar():
    assert is_at_limit(CLAIM, "x " * CLAIM.max_characters)
    assert not is_at_limit(CLAIM, "x " * (CLAIM.max_characters - 1))


OPENED = explanation_grammar("Not stated: ", quotes=True)


def test_a_reason_begins_with_its_opening_under_the_grammar():
    pattern = re.compile(to_regex(OPENED.output_type()))
    assert pattern.fullmatch('{"quote":"Anna","reason":"Not stated: she left."}')
    for reason in ("Stated: she left.", "Not stated: ", "Not stated:  two spaces", "Not stated: ..."):
        assert not pattern.fullmatch(f'{{"quote":"Anna","reason":"{reason}"}}')


def test_a_reason_that_is_cut_in_its_opening_is_written_again():
    resumption = resume(OPENED.form, '{"quote":"Anna","reason":"Not st')
    assert resumption.kept == '{"quote":"Anna","reason":'
    pattern = to_regex(piece(resumption.following).output_type())
    assert re.fullmatch(pattern, '"Not stated: she left."')
    assert not re.fullmatch(pattern, '"She left."')


def test_a_reason_that_is_cut_after_its_opening_is_closed_there():
    resumption = resume(OPENED.form, '{"quote":"Anna","reason":"Not stated: she l')
    assert (resumption.kept, resumption.following) == ('{"quote":"Anna","reason":"Not stated: she l"}', ())
    assert resumption.cut == {"reasons"}


def test_a_quotation_that_is_cut_is_closed_and_the_reason_follows():
    resumption = resume(OPENED.form, '{"quote":"Anna Be')
    assert resumption.kept == '{"quote":"Anna Be","reason":'
    assert resumption.cut == {"quotes"}
    assert re.fullmatch(to_regex(piece(resumption.following).output_type()), '"Not stated: she left."')
