"""The reference protocol: one call for claims, their verdicts and the questions; one for coverage.

A third call words the reason if the judge is to do it. `judge_coverage` has no source parameter: what is
answered from the summary alone cannot see the source. Knows nothing of files and the command line.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from offline_summ import grammar
from offline_summ.prompts import PromptSet
from offline_summ.protocols.dialogue import Dialogue
from offline_summ.schemas import ClaimVerdict, Note, QuestionVerdict
from offline_summ.scoring import Axes

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
    reply = await dialogue.ask("source_judgement", prompt, form)
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
        "claims_truncated": axes != "coverage" and len(reply.claims) >= limit,
        "repeated_claims_dropped": len(claims) < len(reply.claims),
        "repeated_questions_dropped": len(questions) < len(reply.questions),
        "questions_truncated": len(questions) > max_questions,
    }
    return (
        verdicts,
        tuple(reply.questions[i] for i in questions[:max_questions]),
        tuple(note for note, holds in notes.items() if holds),
    )


async def judge_coverage(
    dialogue: Dialogue, prompts: PromptSet, *, summary: str, questions: Sequence[str]
) -> tuple[QuestionVerdict, ...]:
    """Step 2: which questions the summary alone answers.

    Verdicts join questions by id. A question without a verdict is not answered; a verdict on something
    that was not asked is dropped.

    Args:
        dialogue: the conversation to ask in.
        prompts: the prompts of one language.
        summary: the summary.
        questions: the questions of step 1; if there are none, the judge is not asked.

    Raises:
        ExampleError, JudgeError: as `Dialogue.ask`.
    """
    if not questions:
        return ()
    ids = grammar.question_ids(len(questions))
    prompt = prompts.render(
        "joint_coverage",
        summary=prompts.defuse(summary),
        questions=[
            {"id": i, "text": prompts.defuse(question)} for i, question in zip(ids, questions, strict=True)
        ],
    )
    reply = await dialogue.ask("coverage", prompt, grammar.coverage_grammar(len(questions)))
    answers = [reply.answers.get(i) for i in ids]
    return tuple(
        QuestionVerdict(
            question=question,
            answered=answer is not None and answer.answered == grammar.YES,
            reason=answer.reason if answer else None,
        )
        for question, answer in zip(questions, answers, strict=True)
    )


async def word_reason(dialogue: Dialogue, prompts: PromptSet, variables: Mapping[str, Any]) -> str:
    """Let the judge word the reason of a score.

    Args:
        dialogue: the conversation to ask in.
        prompts: the prompts of one language.
        variables: the figures and the failing claims and questions, as for a composed reason.

    Raises:
        ExampleError, JudgeError: as `Dialogue.ask`.
    """
    shown = {
        **variables,
        "unsupported": [prompts.defuse(claim) for claim in variables["unsupported"]],
        "unanswered": [prompts.defuse(question) for question in variables["unanswered"]],
    }
    reply = await dialogue.ask("reason", prompts.render("joint_reason", **shown), grammar.reason_grammar())
    return reply.reason


def _first_of_each(texts: Sequence[str]) -> list[int]:
    seen: dict[str, int] = {}
    for position, text in enumerate(texts):
        seen.setdefault(" ".join(text.split()).casefold(), position)
    return sorted(seen.values())
