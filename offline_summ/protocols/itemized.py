"""The itemized protocol: short calls, one decision each, by the probability of the verdict.

Claims come from the summary alone, questions from the source alone. Each claim is then decided against the
source and each question against the summary, and reasons are worded for what has been decided. All calls on
one text share everything up to the end of that text, so that a prefix cache computes it once. Functions
that work on the summary have no source parameter. Knows nothing of files and the command line.
"""

import asyncio
import hashlib
import math
import unicodedata
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from offline_summ import grammar
from offline_summ.calibration import Decision, Scale, logit, sigmoid
from offline_summ.evidence import locate
from offline_summ.nearest import nearest_passages
from offline_summ.options import Reasons
from offline_summ.parts import parts_of
from offline_summ.prompts import PromptSet
from offline_summ.protocols.base import Judgement, Task
from offline_summ.protocols.dialogue import Dialogue, together
from offline_summ.protocols.drawn import DrawnQuestions
from offline_summ.protocols.items import first_of_each, one_line, whole_ones
from offline_summ.protocols.memo import Memo
from offline_summ.reply_form import is_at_limit
from offline_summ.schemas import (
    ClaimVerdict,
    DroppedQuestions,
    Evidence,
    Note,
    QuestionVerdict,
    Step,
)
from offline_summ.scoring import Axes

_ARTICLES = frozenset({"a", "an", "the"})
_SPARE = 1.3
_WORDS_PER_PART = 250
_MOST_PARTS = 8
_PASSAGES = 3


@dataclass(frozen=True)
class _Kind:
    """What differs between claims and questions once there is something to decide."""

    task: Literal["claim", "question"]
    step: Step
    within: Literal["source", "summary"]
    verdict: str
    openings: Mapping[bool, str]


_CLAIM = _Kind("claim", "source_judgement", "source", "supported", {True: "supported", False: "unsupported"})
_QUESTION = _Kind("question", "coverage", "summary", "answered", {True: "answered", False: "unanswered"})


async def judge(
    dialogue: Dialogue, prompts: PromptSet, task: Task, drawn: Memo[DrawnQuestions] | None = None
) -> Judgement:
    """Judge one example.

    Args:
        dialogue: the conversation to ask in.
        prompts: the prompts of one language.
        task: the example, and what is asked about it.
        drawn: remembers the questions of a source for its next summary.

    Raises:
        ExampleError, JudgeError: as `Dialogue.ask` and `Dialogue.decide`.
    """
    memo = Memo[DrawnQuestions]() if drawn is None else drawn
    claims, questions = await together(
        _judge_claims(dialogue, prompts, task), _judge_questions(dialogue, prompts, task, memo)
    )
    return Judgement(
        claims=claims.claims,
        questions=questions.questions,
        dropped=questions.dropped,
        notes=(*claims.notes, *questions.notes),
    )


async def _judge_claims(dialogue: Dialogue, prompts: PromptSet, task: Task) -> Judgement:
    if task.axes == "coverage":
        return Judgement()
    claims, notes = await draw_claims(dialogue, prompts, summary=task.summary)
    scale = task.scale("alignment")
    decisions = await decide_claims(
        dialogue, prompts, source=task.source, claims=claims, scale=scale, band=task.band
    )
    explained, more = await _explain(dialogue, prompts, _CLAIM, task.source, claims, decisions, task.reasons)
    verdicts = tuple(
        ClaimVerdict(
            claim=claim,
            supported=decision.yes,
            unsure=decision.unsure,
            reason=reason,
            probability=decision.probability,
            evidence=evidence,
        )
        for claim, decision, (reason, evidence) in zip(claims, decisions, explained, strict=True)
    )
    return Judgement(claims=verdicts, notes=(*notes, *more))


async def _judge_questions(
    dialogue: Dialogue, prompts: PromptSet, task: Task, memo: Memo[DrawnQuestions]
) -> Judgement:
    if task.axes == "alignment":
        return Judgement()
    scale = task.scale("coverage")
    if task.questions is not None:
        drawn = DrawnQuestions(task.questions, DroppedQuestions(), ())
    else:
        with dialogue.during("questions"):
            drawn = await memo.get(
                questions_key(prompts, task),
                lambda: draw_questions(
                    dialogue, prompts, source=task.source, max_questions=task.max_questions, scale=scale
                ),
            )
    decisions = await decide_questions(
        dialogue, prompts, summary=task.summary, questions=drawn.questions, scale=scale, band=task.band
    )
    explained, more = await _explain(
        dialogue, prompts, _QUESTION, task.summary, drawn.questions, decisions, task.reasons
    )
    verdicts = tuple(
        QuestionVerdict(
            question=question,
            answered=decision.yes,
            unsure=decision.unsure,
            reason=reason,
            probability=decision.probability,
            evidence=evidence,
        )
        for question, decision, (reason, evidence) in zip(drawn.questions, decisions, explained, strict=True)
    )
    return Judgement(questions=verdicts, dropped=drawn.dropped, notes=(*drawn.notes, *more))


def questions_key(prompts: PromptSet, task: Task) -> Hashable:
    """Return what the questions drawn from a source depend on."""
    source = hashlib.sha256(task.source.encode("utf-8", "surrogatepass")).digest()
    return source, prompts.sha256, task.max_questions, task.scale("coverage")


async def draw_claims(
    dialogue: Dialogue, prompts: PromptSet, *, summary: str
) -> tuple[tuple[str, ...], tuple[Note, ...]]:
    """List the claims of a summary, without its source.

    Returns:
        The claims, each once, and notes.
    """
    limit = grammar.claim_limit(summary)
    prompt = prompts.render_task("claims", prompts.defuse(summary), max_claims=limit)
    answer = await dialogue.ask("claims", prompt, grammar.claims_grammar(limit))
    claims = answer.reply.claims
    whole = whole_ones(grammar.CLAIM, claims) if answer.bounded else range(len(claims))
    listed = [claims[i] for i in whole]
    kept = first_of_each(listed)
    notes: dict[Note, bool] = {
        "claims_truncated": len(claims) >= limit or "claims" in answer.cut or len(listed) < len(claims),
        "repeated_claims_dropped": len(kept) < len(listed),
    }
    return tuple(listed[i] for i in kept), tuple(note for note, holds in notes.items() if holds)


async def draw_questions(
    dialogue: Dialogue, prompts: PromptSet, *, source: str, max_questions: int, scale: Scale
) -> DrawnQuestions:
    """Draw questions from every part of a source, without a summary.

    A question that repeats another one is dropped, and one that the judge does not find answered with yes
    by the source itself. What is left is thinned evenly to `max_questions`.
    """
    text = prompts.defuse(source)
    parts = parts_of(text, words=_WORDS_PER_PART, at_most=min(_MOST_PARTS, max_questions))
    each = math.ceil(max_questions * _SPARE / len(parts))
    form = grammar.questions_grammar(each)
    answers = await together(
        *(
            dialogue.ask(
                "questions",
                prompts.render_task(
                    "questions", text, max_questions=each, part=part if len(parts) > 1 else None
                ),
                form,
            )
            for part in parts
        )
    )
    written = [question for answer in answers for question in answer.reply.questions]
    listed = [
        answer.reply.questions[i]
        for answer in answers
        for i in (
            whole_ones(grammar.QUESTION, answer.reply.questions)
            if answer.bounded
            else range(len(answer.reply.questions))
        )
    ]
    different = _different(listed)
    decisions = await _decide(dialogue, prompts, _QUESTION, text, different, scale, step="questions")
    answerable = [q for q, decision in zip(different, decisions, strict=True) if decision.yes]
    notes: dict[Note, bool] = {
        "questions_truncated": len(listed) < len(written)
        or any("questions" in answer.cut for answer in answers),
        "repeated_questions_dropped": len(different) < len(listed),
        "unanswerable_questions_dropped": len(answerable) < len(different),
    }
    return DrawnQuestions(
        tuple(_thinned(answerable, max_questions)),
        DroppedQuestions(
            unanswerable=len(different) - len(answerable), repeated=len(listed) - len(different)
        ),
        tuple(note for note, holds in notes.items() if holds),
    )


async def decide_claims(
    dialogue: Dialogue,
    prompts: PromptSet,
    *,
    source: str,
    claims: Sequence[str],
    scale: Scale,
    band: float = 0.0,
) -> list[Decision]:
    """Decide for each claim whether the source supports it."""
    return await _decide(dialogue, prompts, _CLAIM, prompts.defuse(source), claims, scale, band)


async def decide_questions(
    dialogue: Dialogue,
    prompts: PromptSet,
    *,
    summary: str,
    questions: Sequence[str],
    scale: Scale,
    band: float = 0.0,
) -> list[Decision]:
    """Decide for each question whether the summary alone answers it with yes."""
    return await _decide(dialogue, prompts, _QUESTION, prompts.defuse(summary), questions, scale, band)


async def _decide(
    dialogue: Dialogue,
    prompts: PromptSet,
    kind: _Kind,
    text: str,
    items: Sequence[str],
    scale: Scale,
    band: float = 0.0,
    *,
    step: Step | None = None,
) -> list[Decision]:
    """Decide each item: the log odds of the wordings' verdict words are averaged, then scaled."""
    wordings, words = prompts.wordings(kind.task), prompts.verdict_words(kind.task)
    shown = [one_line(prompts.defuse(item)) for item in items]
    # In a thread: the passages of many items in a long text take seconds.
    passages = await asyncio.to_thread(nearest_passages, text, shown, count=_PASSAGES)

    async def odds(item: str, passages: str | None, wording: str) -> float:
        asked = prompts.render_task(wording, text, passages=passages, **{kind.task: item})
        return logit((await dialogue.decide(step or kind.step, asked, words))[words[0]])

    found = await together(
        *(
            odds(item, near, wording)
            for item, near in zip(shown, passages, strict=True)
            for wording in wordings
        )
    )
    means = [sum(found[i : i + len(wordings)]) / len(wordings) for i in range(0, len(found), len(wordings))]
    return [scale.decide(sigmoid(mean), band=band) for mean in means]


_Explanation = tuple[str | None, tuple[Evidence, ...] | None]


async def _explain(
    dialogue: Dialogue,
    prompts: PromptSet,
    kind: _Kind,
    text: str,
    items: Sequence[str],
    decisions: Sequence[Decision],
    reasons: Reasons,
) -> tuple[list[_Explanation], tuple[Note, ...]]:
    """Word a reason for each verdict that stands, and find the passage behind each positive one."""
    defused, cut = prompts.defuse(text), set[str]()

    async def explain(item: str, decision: Decision) -> _Explanation:
        if reasons == "none" or (reasons == "failing" and decision.yes):
            return None, None
        opening = _opening(prompts, kind, decision.yes)
        variables: dict[str, Any] = {kind.task: one_line(prompts.defuse(item)), kind.verdict: decision.yes}
        prompt = prompts.render_task(f"{kind.task}_reason", defused, opening=opening.rstrip(), **variables)
        form = grammar.explanation_grammar(opening, quotes=decision.yes)
        answer = await dialogue.ask(kind.step, prompt, form)
        cut.update(answer.cut)
        if answer.bounded and is_at_limit(grammar.REASON, answer.reply.reason.removeprefix(opening)):
            cut.add("reasons")
        if answer.reply.quote is None:
            return answer.reply.reason, None
        passage = await asyncio.to_thread(locate, answer.reply.quote, defused, within=kind.within)
        if passage is None:
            return answer.reply.reason, None
        quoted = passage.model_copy(update={"quote": text[passage.start : passage.end]})
        return answer.reply.reason, (quoted,)

    explained = await together(*(explain(item, d) for item, d in zip(items, decisions, strict=True)))
    return list(explained), ("reasons_truncated",) if "reasons" in cut else ()


def replies(
    *, axes: Axes, max_questions: int, prompts: Sequence[PromptSet], drawn: bool, reasons: Reasons
) -> tuple[grammar.Piece, ...]:
    """Return every reply that an example may ask a judge for, so that an engine can prepare them.

    Args:
        axes: the axes to judge.
        max_questions: most questions.
        prompts: the prompts that may be used.
        drawn: whether questions are drawn.
        reasons: which verdicts get a reason.
    """
    whole: list[grammar.ReplyGrammar[Any]] = []
    if axes != "coverage":
        whole += [grammar.claims_grammar(limit) for limit in grammar.CLAIM_LIMITS]
    if axes != "alignment" and drawn:
        counts = {
            math.ceil(max_questions * _SPARE / parts)
            for parts in range(1, min(_MOST_PARTS, max_questions) + 1)
        }
        whole += [grammar.questions_grammar(count) for count in sorted(counts)]
    kinds = [k for k, other in ((_CLAIM, "coverage"), (_QUESTION, "alignment")) if axes != other]
    if reasons != "none":
        for each in prompts:
            for kind in kinds:
                for yes in (False,) if reasons == "failing" else (False, True):
                    whole.append(grammar.explanation_grammar(_opening(each, kind, yes), quotes=yes))
    words = {each.verdict_words(kind.task) for each in prompts for kind in kinds}
    decisions = [grammar.decision_grammar(each) for each in sorted(words)]
    pieces = [piece for each in whole for piece in each.pieces()]
    return tuple({piece.name: piece for piece in (*whole, *decisions, *pieces)}.values())


def _opening(prompts: PromptSet, kind: _Kind, yes: bool) -> str:
    """Return the words that a reason begins with, up to where the judge goes on."""
    phrase = prompts.phrase(kind.openings[yes])
    return phrase if phrase.endswith("：") else f"{phrase} "


def _different(questions: Sequence[str]) -> list[str]:
    """Return the questions without those that repeat an earlier one.

    A repetition has the same words in the same order; case, punctuation, spaces and articles do not count.
    Likeness does not make two questions one: those on an old and a new bridge, or on Maria and Mario, are
    more alike than most that ask the same in other words.
    """
    kept: dict[tuple[str, ...], str] = {}
    for question in questions:
        kept.setdefault(_gist(question), question)
    return list(kept.values())


def _gist(question: str) -> tuple[str, ...]:
    text = "".join(" " if unicodedata.category(c)[0] in "PZC" else c for c in question.lower())
    words = tuple(word for word in text.split() if word not in _ARTICLES)
    return words or (question,)


def _thinned(texts: Sequence[str], count: int) -> list[str]:
    """Return `count` of the texts, evenly spread over all of them, in their order."""
    if len(texts) <= count:
        return list(texts)
    return [texts[(2 * i + 1) * len(texts) // (2 * count)] for i in range(count)]
