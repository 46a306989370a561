"""The reference protocol: one call for claims, their verdicts and the questions; one for coverage.

`judge_coverage` has no source parameter: what is
answered from the summary alone cannot see the source. Knows nothing of files and the command line.
"""

import re
from collections.abc import Sequence
from typing import Any

from offline_summ import grammar
from offline_summ.prompts import PromptSet
from offline_summ.protocols.base import Judgement, Task
from offline_summ.protocols.dialogue import Answer, Dialogue
from offline_summ.protocols.items import first_of_each, whole_ones
from offline_summ.reply_form import is_at_limit
from offline_summ.schemas import ClaimVerdict, Note, QuestionVerdict
from offline_summ.scoring import Axes

_LINE_END = re.compile("\r\n?|[\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")

SourceJudgement = tuple[tuple[ClaimVerdict, ...], tuple[str, ...], tuple[Note, ...]]


async def judge(dialogue: Dialogue, prompts: PromptSet, task: Task) -> Judgement:
    """Judge one example.

    Args:
        dialogue: the conversation to ask in.
        prompts: the prompts of one language.
        task: the example, and what is asked about it; each reply has its reasons in any case, and verdicts
            have no probability.

    Raises:
        ExampleError, JudgeError: as `Dialogue.ask`.
    """
    given, axes = task.questions, task.axes
    claims: tuple[ClaimVerdict, ...] = ()
    questions, notes = given or (), tuple[Note, ...]()
    if given is None or axes != "coverage":
        claims, drawn, notes = await judge_source(
            dialogue,
            prompts,
            source=task.source,
            summary=task.summary,
            axes=axes if given is None else "alignment",
            max_questions=task.max_questions,
        )
        questions = drawn if given is None else given
    verdicts, more = await judge_coverage(dialogue, prompts, summary=task.summary, questions=questions)
    return Judgement(claims=claims, questions=verdicts, notes=(*notes, *more))


async def judge_source(
    dialogue: Dialogue, prompts: PromptSet, *, source: str, summary: str, axes: Axes, max_questions: int
) -> SourceJudgement:
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
    claims = first_of_each([claim.claim for claim in reply.claims])
    questions = first_of_each(reply.questions)
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


def replies(
    *, axes: Axes, max_questions: int, given_questions: int | None = None
) -> tuple[grammar.Piece, ...]:
    """Return every reply that an example may ask a judge for, so that an engine can prepare them.

    Args:
        axes: the axes to judge.
        max_questions: most questions; past 16 of them only some of the counts in between are listed.
        given_questions: how many questions are asked instead of drawn ones.
    """
    asked = axes if given_questions is None or axes == "coverage" else "alignment"
    limits = grammar.CLAIM_LIMITS if asked != "coverage" else (0,)
    counts = {min(count, max_questions) for count in (*range(1, 17), *range(20, 101, 20), max_questions)}
    whole: list[grammar.ReplyGrammar[Any]] = []
    if given_questions is None or axes != "coverage":
        whole += [
            grammar.judgement_grammar(axes=asked, max_claims=limit, max_questions=max_questions)
            for limit in limits
        ]
    if axes != "alignment":
        whole += [
            grammar.coverage_grammar(count)
            for count in (sorted(counts) if given_questions is None else [given_questions])
        ]
    # The pieces of a coverage reply are the same for any number of questions from two on.
    pieces = [piece for each in whole if not each.name.startswith("coverage") for piece in each.pieces()]
    if axes != "alignment":
        pieces += grammar.coverage_grammar(2).pieces()
    return tuple({piece.name: piece for piece in (*whole, *pieces)}.values())


def _without_overlong_items(
    answer: Answer[grammar.JudgementReply],
) -> tuple[grammar.JudgementReply, frozenset[str]]:
    """Drop claims and questions at their limit of characters."""
    reply, cut = answer.reply, set(answer.cut)
    if not answer.bounded:
        return reply, answer.cut
    if any(is_at_limit(grammar.REASON, c.reason or "") for c in reply.claims):
        cut.add("reasons")
    claims = [reply.claims[i] for i in whole_ones(grammar.CLAIM, [c.claim for c in reply.claims])]
    questions = [reply.questions[i] for i in whole_ones(grammar.QUESTION, reply.questions)]
    for part, before, after in (
        (grammar.CLAIM, reply.claims, claims),
        (grammar.QUESTION, reply.questions, questions),
    ):
        if len(after) < len(before):
            cut.add(part.name)
    return grammar.JudgementReply(claims=tuple(claims), questions=tuple(questions)), frozenset(cut)


def _in_a_list(text: str) -> str:
    """Indent further lines, so that no line of a text can pass for the next entry of a list."""
    return _LINE_END.sub(r"\g<0>    ", text)
