"""The reply each call must give, with exact counts, and the parser of that reply.

A reply is compact JSON without free whitespace. Field order, verdict words, ids and counts come from the
grammar; only the texts are the judge's own. The parser takes the same form with any counts, because a
scripted judge may give fewer or more items than asked; it repairs nothing. Knows nothing of prompts and
of the engine that runs the grammar.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from offline_summ import reply_form
from offline_summ.errors import ExampleError
from offline_summ.parts import word_count
from offline_summ.reply_form import Fixed, Form, Items, Part, Resumption, Text, Word
from offline_summ.scoring import Axes

if TYPE_CHECKING:
    from outlines.types.dsl import Term

YES, NO = "yes", "no"

# What one text may take: tokens of the reply's budget, measured on news summaries with the embedded judges,
# where the longest honest text stays under half of it (Japanese and Chinese need about twice the tokens of
# English); and characters, where a grammar can count them. A text at that limit counts as cut.
CLAIM = Text("claims", max_tokens=48, max_characters=480)
QUESTION = Text("questions", max_tokens=40, max_characters=320)
REASON = Text("reasons", max_tokens=40, max_characters=320, explains=True)
WORDED_REASON = Text("reasons", max_tokens=256, max_characters=1600, explains=True)
QUOTE = Text("quotes", max_tokens=64, max_characters=480, explains=True)
_VERDICT = Word((YES, NO))

CLAIM_LIMITS = (4, 8, 12, 16, 24, 32, 48, 64)
_WORDS_PER_CLAIM = 12

NonEmpty = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
R = TypeVar("R")


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClaimReply(_Reply):
    """A claim with the judge's verdict."""

    claim: NonEmpty
    supported: Literal["yes", "no"]
    reason: Annotated[str, StringConstraints(strip_whitespace=True)] | None = None


class JudgementReply(_Reply):
    """Reply of step 1."""

    claims: tuple[ClaimReply, ...] = ()
    questions: tuple[NonEmpty, ...] = ()


class AnswerReply(_Reply):
    """The judge's verdict on one question."""

    answered: Literal["yes", "no"]
    reason: Annotated[str, StringConstraints(strip_whitespace=True)] | None = None


class CoverageReply(_Reply):
    """Reply of step 2: verdicts by question id."""

    answers: dict[str, AnswerReply]


class ReasonReply(_Reply):
    """Reply of the call that words the reason."""

    reason: NonEmpty


class VerdictReply(_Reply):
    """One verdict with its reason."""

    verdict: Literal["yes", "no"]
    reason: NonEmpty


class ClaimsReply(_Reply):
    """Claims of a summary, without verdicts."""

    claims: tuple[NonEmpty, ...] = ()


class QuestionsReply(_Reply):
    """Questions about a source."""

    questions: tuple[NonEmpty, ...]


class ExplanationReply(_Reply):
    """The reason of a verdict that stands, and, for a positive one, the passage behind it."""

    quote: NonEmpty | None = None
    reason: NonEmpty


@dataclass(frozen=True)
class Piece:
    """What one call must write: a whole reply, or what is missing of one that was cut.

    Attributes:
        name: for logs and caches; equal names mean equal grammars.
        form: its parts.
    """

    name: str
    form: Form

    @property
    def max_tokens(self) -> int:
        """Budget in tokens."""
        return reply_form.max_tokens(self.form)

    @property
    def min_tokens(self) -> int:
        """Tokens that the shortest reply worth having takes."""
        return reply_form.min_tokens(self.form)

    def output_type(self, *, bounded: bool = False) -> "Term":
        """Return the Outlines output type; `bounded` lets texts end at their limit of characters."""
        return reply_form.output_type(self.form, bounded=bounded)


@dataclass(frozen=True)
class ReplyGrammar(Piece, Generic[R]):
    """What a call must reply, and how the reply is read.

    Attributes:
        read: turns parsed JSON into the reply; raises pydantic's ValidationError or ValueError.
    """

    read: Callable[[Any], R]

    def parse(self, text: str) -> R:
        """Parse a complete reply.

        Raises:
            ExampleError: kind `invalid_reply`; the message holds nothing of the reply.
        """
        try:
            return self.read(json.loads(text, object_pairs_hook=_object_without_repeated_keys))
        except (ValidationError, ValueError, RecursionError) as error:
            # Not chained: these exceptions quote the reply, which is document text.
            self._refuse(_place_of(error))

    def resume(self, reply: str, *, more: bool) -> "Resumption | None":
        """Return how a reply goes on that was cut, or None if it cannot. See `reply_form.resume`.

        Raises:
            ExampleError: kind `invalid_reply`: `reply` is no beginning of such a reply.
        """
        try:
            return reply_form.resume(self.form, reply, more=more)
        except ValueError as error:
            self._refuse(f": {error}")

    def pieces(self) -> tuple[Piece, ...]:
        """Return what `resume` may ask a judge for."""
        return tuple(piece(form) for form in reply_form.continuations(self.form))

    def _refuse(self, place: str) -> NoReturn:
        raise ExampleError(
            "invalid_reply", f"The judge's reply does not follow the grammar {self.name!r}{place}."
        ) from None


def piece(form: Form) -> Piece:
    """Return the piece of a reply that has this form; equal forms share one name."""
    return Piece(f"piece-{hashlib.sha256(repr(form).encode()).hexdigest()[:12]}", form)


def claim_limit(summary: str) -> int:
    """Return how many claims a reply may list: about one for twelve words of the summary, in steps.

    The steps keep the number of different grammars, and so of compilations, small. Japanese and Chinese
    characters count half a word each.
    """
    wanted = 2 + word_count(summary) / _WORDS_PER_CLAIM
    return next((limit for limit in CLAIM_LIMITS if limit >= wanted), CLAIM_LIMITS[-1])


@lru_cache(maxsize=256)
def judgement_grammar(*, axes: Axes, max_claims: int, max_questions: int) -> ReplyGrammar[JudgementReply]:
    """Return the grammar of step 1: at most `max_claims` claims, one to `max_questions` questions.

    Args:
        axes: "alignment" leaves the questions out of the reply, "coverage" the claims.
        max_claims: from 0 claims to this many.
        max_questions: from 1 question to this many.
    """
    fields = {"both": ("claims", "questions"), "alignment": ("claims",), "coverage": ("questions",)}[axes]
    claim = (
        Fixed('{"claim":'),
        CLAIM,
        Fixed(',"supported":"'),
        _VERDICT,
        Fixed('","reason":'),
        REASON,
        Fixed("}"),
    )
    lists = {
        "claims": Items("claims", claim, at_least=0, at_most=max_claims),
        "questions": Items("questions", (QUESTION,), at_least=1, at_most=max_questions),
    }
    form: list[Part] = []
    for position, field in enumerate(fields):
        form += [Fixed(("]," if position else "{") + f'"{field}":['), lists[field]]

    def read(data: Any) -> JudgementReply:
        if not isinstance(data, dict) or set(data) != set(fields):
            raise ValueError("fields")
        return JudgementReply.model_validate(data)

    return ReplyGrammar(
        name=f"judgement-{axes}-{max_claims}-{max_questions}", form=(*form, Fixed("]}")), read=read
    )


def question_ids(count: int) -> tuple[str, ...]:
    """Return the ids by which questions and verdicts are joined: q1, q2, ..."""
    return tuple(f"q{number}" for number in range(1, count + 1))


@lru_cache(maxsize=256)
def coverage_grammar(count: int) -> ReplyGrammar[CoverageReply]:
    """Return the grammar of step 2: exactly one verdict for each of `count` questions, by its id."""

    form: list[Part] = []
    for position, identifier in enumerate(question_ids(count)):
        head = ("}," if position else "{") + f'"{identifier}":' + '{"answered":"'
        form += [Fixed(head), _VERDICT, Fixed('","reason":'), REASON]
    return ReplyGrammar(
        name=f"coverage-{count}",
        form=(*form, Fixed("}}")),
        read=lambda data: CoverageReply(answers=data),
    )


@lru_cache(maxsize=1)
def reason_grammar() -> ReplyGrammar[ReasonReply]:
    """Return the grammar of the call that words the reason of a score."""
    form = (Fixed('{"reason":'), WORDED_REASON, Fixed("}"))
    return ReplyGrammar(name="reason", form=form, read=ReasonReply.model_validate)


@lru_cache(maxsize=16)
def verdict_grammar(
    *, reason_first: bool, reason_tokens: int = REASON.max_tokens
) -> ReplyGrammar[VerdictReply]:
    """Return the grammar of one verdict with its reason, in either order.

    Args:
        reason_first: whether the judge reasons before it decides.
        reason_tokens: what the reason may take of the budget.
    """
    reason = (Fixed('"reason":'), replace(REASON, max_tokens=reason_tokens))
    verdict = (Fixed('"verdict":"'), _VERDICT, Fixed('"'))
    first, second = (reason, verdict) if reason_first else (verdict, reason)
    return ReplyGrammar(
        name=f"verdict-reason-{'first' if reason_first else 'last'}-{reason_tokens}",
        form=(Fixed("{"), *first, Fixed(","), *second, Fixed("}")),
        read=VerdictReply.model_validate,
    )


@lru_cache(maxsize=16)
def claims_grammar(max_claims: int) -> ReplyGrammar[ClaimsReply]:
    """Return the grammar of a list of claims without verdicts: from none to `max_claims`."""
    claims = Items("claims", (CLAIM,), at_least=0, at_most=max_claims)
    return ReplyGrammar(
        name=f"claims-{max_claims}",
        form=(Fixed('{"claims":['), claims, Fixed("]}")),
        read=ClaimsReply.model_validate,
    )


@lru_cache(maxsize=128)
def questions_grammar(max_questions: int) -> ReplyGrammar[QuestionsReply]:
    """Return the grammar of a list of questions alone: from one to `max_questions`."""
    questions = Items("questions", (QUESTION,), at_least=1, at_most=max_questions)
    return ReplyGrammar(
        name=f"questions-{max_questions}",
        form=(Fixed('{"questions":['), questions, Fixed("]}")),
        read=QuestionsReply.model_validate,
    )


@lru_cache(maxsize=64)
def explanation_grammar(opening: str, *, quotes: bool) -> ReplyGrammar[ExplanationReply]:
    """Return the grammar of the reason for a verdict that has been decided.

    Args:
        opening: the words that state the verdict; every reply begins its reason with them, so that no
            reason can begin by saying the opposite.
        quotes: whether the reply first quotes the passage behind the verdict.
    """
    begun = replace(REASON, opening=opening)
    quote = (Fixed('{"quote":'), QUOTE, Fixed(',"reason":')) if quotes else (Fixed('{"reason":'),)

    def read(data: Any) -> ExplanationReply:
        reply = ExplanationReply.model_validate(data)
        if not reply.reason.startswith(opening) or (reply.quote is None) == quotes:
            raise ValueError("verdict")
        return reply

    name = hashlib.sha256(opening.encode()).hexdigest()[:12]
    return ReplyGrammar(
        name=f"explanation-{'quote-' if quotes else ''}{name}", form=(*quote, begun, Fixed("}")), read=read
    )


@lru_cache(maxsize=16)
def decision_grammar(words: tuple[str, ...]) -> Piece:
    """Return the form of a bare decision: one of the words, in any of its usual cases, and nothing else."""
    spelled = (s for word in words for s in (word, word.lower(), word.upper(), word.capitalize()))
    return piece((Word(tuple(dict.fromkeys(spelled))),))


def _object_without_repeated_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) != len(pairs):
        raise ValueError("an id stands twice")
    return read


def _place_of(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        steps = [str(step) for step in first["loc"] if isinstance(step, int) or step in _FIELD_NAMES]
        return f" at {'.'.join(steps)}" if steps else ""
    return f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""


_FIELD_NAMES = frozenset(
    {"claims", "claim", "supported", "reason", "questions", "answers", "answered", "verdict", "quote"}
)
