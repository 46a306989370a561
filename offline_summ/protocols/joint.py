"""The reference protocol: one call for claims, their verdicts and the questions; one for coverage.

A third call words the reason if the judge is to do it. `judge_coverage` has no source parameter: what is
answered from the summary alone cannot see the source. Knows nothing of files and the command line.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from offline_summ import grammar
from offline_summ.errors import ExampleError
from offline_summ.prompts import PromptSet
from offline_summ.protocols.dialogue import Answer, Dialogue
from offline_summ.reply_form import is_at_limit
from offline_summ.schemas import ClaimVerdict, Note, QuestionVerdict
from offline_summ.scoring import Axes

_LINE_END = re.compile("\r\n?|[\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")

Judgement = tuple[tuple[ClaimVerdict, ...], tuple[str, ...], tuple[Note, ...]]


async def judge_source(
    dialogue: Dialogue, prompts: PromptSet, *, source: str, summary: str, axes: Axes, max_questions: int
) -> Judgement:
    """Step 1: claims of the summary with verdicts, and questions drawn from the source.

    Args:
        dialogue: the conversation to ask in.
        prompts: the prompts of one language.
        source: the source.
        summary: the summary; not shown to the judge if only coverage is asked for.
        axes: the axes to judge; an axis that is not asked for stays empty.
        max_questions: further questions are ignored.

    Returns:
        Verdicts, questions, and notes on what was left out. An item that repeats an earlier one word for
        word is dropped, so that a judge that repeats itself counts no claim twice.

    Raises:
        ExampleError, JudgeError: as `Dialogue.ask`.
    """
    limit = grammar.claim_limit(summary)
    prompt = prompts.render(
        "joint_judgement",
        source=prompts.defuse(source),
        summary=prompts.defuse(summary) if axes != "coverage" else "",
        axes=axes,
        max_claims=limit,
        max_questions=max_questions,
    )
    form = grammar.judgement_grammar(
        axes=axes, max_claims=limit if axes != "coverage" else 0, max_questions=max_questions
    )
    answer = await dialogue.ask("source_judgement", prompt, form)
    reply, cut = _without_overlong_items(answer)
    claims = _first_of_each([claim.claim for claim in reply.claims])
    questions = _first_of_each(reply.questions)
    verdicts = tuple(
        ClaimVerdict(
            claim=reply.claims[i].claim,
            supported=reply.claims[i].supported == grammar.YES,
            reason=reply.claims[i].reason,
        )
        for i in claims
    )
    notes: dict[Note, bool] = {
        "claims_truncated": axes != "coverage" and (len(reply.claims) >= limit or "claims" in cut),
        "repeated_claims_dropped": len(claims) < len(reply.claims),
        "repeated_questions_dropped": len(questions) < len(reply.questions),
        "questions_truncated": len(questions) > max_questions or "questions" in cut,
        "reasons_truncated": "reasons" in cut,
    }
    return (
        verdicts,
        tuple(reply.questions[i] for i in questions[:max_questions]),
        tuple(note for note, holds in notes.items() if holds),
    )


async def judge_coverage(
    dialogue: Dialogue, prompts: PromptSet, *, summary: str, questions: Sequence[str]
) -> tuple[tuple[QuestionVerdict, ...], tuple[Note, ...]]:
    """Step 2: which questions the summary alone answers.

    Verdicts join questions by id. A question without a verdict is not answered; a verdict on something
    that was not asked is dropped.

    Args:
        dialogue: the conversation to ask in.
        prompts: the prompts of one language.
        summary: the summary.
        questions: the questions of step 1; if there are none, the judge is not asked.

    Returns:
        A verdict a question, and notes.

    Raises:
        ExampleError, JudgeError: as `Dialogue.ask`.
    """
    if not questions:
        return (), ()
    ids = grammar.question_ids(len(questions))
    prompt = prompts.render(
        "joint_coverage",
        summary=prompts.defuse(summary),
        questions=[
            {"id": i, "text": _in_a_list(prompts.defuse(question))}
            for i, question in zip(ids, questions, strict=True)
        ],
    )
    answer = await dialogue.ask("coverage", prompt, grammar.coverage_grammar(len(questions)))
    answers = [answer.reply.answers.get(i) for i in ids]
    verdicts = tuple(
        QuestionVerdict(
            question=question,
            answered=verdict is not None and verdict.answered == grammar.YES,
            reason=verdict.reason if verdict else None,
        )
        for question, verdict in zip(questions, answers, strict=True)
    )
    notes: dict[Note, bool] = {
        "missing_verdicts": None in answers,
        "reasons_truncated": "reasons" in answer.cut
        or (answer.bounded and any(is_at_limit(grammar.REASON, v.reason or "") for v in verdicts)),
    }
    return verdicts, tuple(note for note, holds in notes.items() if holds)


async def word_reason(
    dialogue: Dialogue, prompts: PromptSet, variables: Mapping[str, Any]
) -> tuple[str, tuple[Note, ...]]:
    """Let the judge word the reason of a score.

    Args:
        dialogue: the conversation to ask in.
        prompts: the prompts of one language.
        variables: the figures and the failing claims and questions, as for a composed reason.

    Returns:
        The reason, and notes.

    Raises:
        ExampleError, JudgeError: as `Dialogue.ask`.
    """
    shown = {
        **variables,
        "unsupported": [prompts.defuse(claim) for claim in variables["unsupported"]],
        "unanswered": [prompts.defuse(question) for question in variables["unanswered"]],
    }
    answer = await dialogue.ask("reason", prompts.render("joint_reason", **shown), grammar.reason_grammar())
    cut = "reasons" in answer.cut or (
        answer.bounded and is_at_limit(grammar.WORDED_REASON, answer.reply.reason)
    )
    return answer.reply.reason, ("reasons_truncated",) if cut else ()


def replies(*, axes: Axes, max_questions: int, reason: bool) -> tuple[grammar.Piece, ...]:
    """Return every reply that an example may ask a judge for, so that an engine can prepare them.

    Args:
        axes: the axes to judge.
        max_questions: most questions; past 16 of them only some of the counts in between are listed.
        reason: whether the judge words the reason.
    """
    limits = grammar.CLAIM_LIMITS if axes != "coverage" else (0,)
    counts = {min(count, max_questions) for count in (*range(1, 17), *range(20, 101, 20), max_questions)}
    whole: list[grammar.ReplyGrammar[Any]] = [
        grammar.judgement_grammar(axes=axes, max_claims=limit, max_questions=max_questions)
        for limit in limits
    ]
    if axes != "alignment":
        whole += [grammar.coverage_grammar(count) for count in sorted(counts)]
    if reason:
        whole.append(grammar.reason_grammar())
    # The pieces of a coverage reply are the same for any number of questions from two on.
    pieces = [piece for each in whole if not each.name.startswith("coverage") for piece in each.pieces()]
    if axes != "alignment":
        pieces += grammar.coverage_grammar(2).pieces()
    return tuple({piece.name: piece for piece in (*whole, *pieces)}.values())


def _without_overlong_items(
    answer: Answer[grammar.JudgementReply],
) -> tuple[grammar.JudgementReply, frozenset[str]]:
    """Drop claims and questions at their limit of characters: they may have been cut there."""
    reply, cut = answer.reply, set(answer.cut)
    if not answer.bounded:
        return reply, answer.cut
    if any(is_at_limit(grammar.REASON, c.reason or "") for c in reply.claims):
        cut.add("reasons")
    claims = tuple(c for c in reply.claims if not is_at_limit(grammar.CLAIM, c.claim))
    questions = tuple(q for q in reply.questions if not is_at_limit(grammar.QUESTION, q))
    for name, before, after in (
        ("claims", reply.claims, claims),
        ("questions", reply.questions, questions),
    ):
        if len(after) < len(before):
            cut.add(name)
            if not after:
                raise ExampleError(
                    "truncated_reply",
                    f"Every one of the judge's {name} runs into its limit of characters.",
                    "Use a stronger judge, or a shorter text.",
                )
    return grammar.JudgementReply(claims=claims, questions=questions), frozenset(cut)


def _in_a_list(text: str) -> str:
    """Indent further lines, so that no line of a text can pass for the next entry of a list."""
    return _LINE_END.sub(r"\g<0>    ", text)


def _first_of_each(texts: Sequence[str]) -> list[int]:
    seen: dict[str, int] = {}
    for position, text in enumerate(texts):
        seen.setdefault(" ".join(text.split()).casefold(), position)
    return sorted(seen.values())
