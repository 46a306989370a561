"""The reply each call must give: an Outlines output type with exact counts, and the parser of that reply.

A reply is compact JSON without free whitespace. Field order, verdict words, ids and counts come from the
grammar; only the texts are the judge's own. The parser takes the same form with any counts, because a
scripted judge may give fewer or more items than asked; it repairs nothing. Knows nothing of prompts and
of the engine that runs the grammar.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from offline_summ.errors import ExampleError
from offline_summ.scoring import Axes

if TYPE_CHECKING:
    from outlines.types.dsl import Term

YES, NO = "yes", "no"

# One JSON string of printable text: no space at either end, never two in a row (a judge that falls into
# a loop falls into whitespace first), `\"` and `\\` as the only escapes.
_CHARACTER = r'(?:[^"\\ \x00-\x1f\x7f-\x9f\u00a0\u2028\u2029\u3000]|\\["\\])'
# The first character is no dot either: a small judge copies the "..." of the form that it is shown.
_FIRST = _CHARACTER.replace("[^", "[^.\\u2026", 1)
TEXT_PATTERN = f'"{_FIRST}(?: ?{_CHARACTER})*"'

# Tokens that a call may spend on one item. Measured on news summaries with the embedded judges the longest
# honest item stays under half of it; Japanese and Chinese need about twice the tokens of English.
_TOKENS_PER_CLAIM = 96
_TOKENS_PER_QUESTION = 40
_TOKENS_PER_ANSWER = 64
_TOKENS_PER_REASON = 256
_TOKENS_OF_FRAME = 32

_CLAIM_LIMITS = (4, 8, 12, 16, 24, 32, 48, 64)
_WORDS_PER_CLAIM = 12
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_CJK_CHARACTERS_PER_WORD = 2

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
R = TypeVar("R")


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClaimReply(_Reply):
    """A claim with the judge's verdict."""

    claim: Text
    supported: Literal["yes", "no"]
    reason: str | None = None


class JudgementReply(_Reply):
    """Reply of step 1."""

    claims: tuple[ClaimReply, ...] = ()
    questions: tuple[Text, ...] = ()


class AnswerReply(_Reply):
    """The judge's verdict on one question."""

    answered: Literal["yes", "no"]
    reason: str | None = None


class CoverageReply(_Reply):
    """Reply of step 2: verdicts by question id."""

    answers: dict[str, AnswerReply]


class ReasonReply(_Reply):
    """Reply of the call that words the reason."""

    reason: Text


@dataclass(frozen=True)
class ReplyGrammar(Generic[R]):
    """What one call must reply.

    Attributes:
        name: for logs and caches; equal names mean equal grammars.
        max_tokens: budget of the reply, in tokens.
        build: builds the Outlines output type.
        read: turns parsed JSON into the reply; raises pydantic's ValidationError or ValueError.
    """

    name: str
    max_tokens: int
    build: Callable[[], "Term"]
    read: Callable[[Any], R]

    def output_type(self) -> "Term":
        """Return the Outlines output type that constrains the reply."""
        return self.build()

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

    def _refuse(self, place: str) -> NoReturn:
        raise ExampleError(
            "invalid_reply", f"The judge's reply does not follow the grammar {self.name!r}{place}."
        ) from None


def claim_limit(summary: str) -> int:
    """Return how many claims a reply may list: about one for twelve words of the summary, in steps.

    The steps keep the number of different grammars, and so of compilations, small. Japanese and Chinese
    characters count half a word each.
    """
    characters = len(_CJK.findall(summary))
    words = len(_CJK.sub(" ", summary).split()) + characters / _CJK_CHARACTERS_PER_WORD
    wanted = 2 + words / _WORDS_PER_CLAIM
    return next((limit for limit in _CLAIM_LIMITS if limit >= wanted), _CLAIM_LIMITS[-1])


@lru_cache(maxsize=256)
def judgement_grammar(*, axes: Axes, max_claims: int, max_questions: int) -> ReplyGrammar[JudgementReply]:
    """Return the grammar of step 1: at most `max_claims` claims, one to `max_questions` questions.

    Args:
        axes: "alignment" leaves the questions out of the reply, "coverage" the claims.
        max_claims: from 0 claims to this many.
        max_questions: from 1 question to this many.
    """
    fields = {"both": ("claims", "questions"), "alignment": ("claims",), "coverage": ("questions",)}[axes]

    def build() -> "Term":
        from outlines.types import Regex
        from outlines.types.dsl import String

        text, verdict = Regex(TEXT_PATTERN), Regex(f"({YES}|{NO})")
        claim = String('{"claim":') + text + ',"supported":"' + verdict + '","reason":' + text + "}"
        lists = {
            "claims": _list_of(claim, at_least=0, at_most=max_claims),
            "questions": _list_of(text, at_least=1, at_most=max_questions),
        }
        whole: Term = String("{")
        for position, field in enumerate(fields):
            whole = whole + ("," if position else "") + f'"{field}":[' + lists[field] + "]"
        return whole + "}"

    def read(data: Any) -> JudgementReply:
        if not isinstance(data, dict) or set(data) != set(fields):
            raise ValueError("fields")
        return JudgementReply.model_validate(data)

    tokens = {"claims": max_claims * _TOKENS_PER_CLAIM, "questions": max_questions * _TOKENS_PER_QUESTION}
    return ReplyGrammar(
        name=f"judgement-{axes}-{max_claims}-{max_questions}",
        max_tokens=_TOKENS_OF_FRAME + sum(tokens[field] for field in fields),
        build=build,
        read=read,
    )


def question_ids(count: int) -> tuple[str, ...]:
    """Return the ids by which questions and verdicts are joined: q1, q2, ..."""
    return tuple(f"q{number}" for number in range(1, count + 1))


@lru_cache(maxsize=256)
def coverage_grammar(count: int) -> ReplyGrammar[CoverageReply]:
    """Return the grammar of step 2: exactly one verdict for each of `count` questions, by its id."""

    def build() -> "Term":
        from outlines.types import Regex
        from outlines.types.dsl import String

        text, verdict = Regex(TEXT_PATTERN), Regex(f"({YES}|{NO})")
        whole: Term = String("{")
        for position, identifier in enumerate(question_ids(count)):
            head = ("," if position else "") + f'"{identifier}":' + '{"answered":"'
            whole = whole + head + verdict + '","reason":' + text + "}"
        return whole + "}"

    return ReplyGrammar(
        name=f"coverage-{count}",
        max_tokens=_TOKENS_OF_FRAME + count * _TOKENS_PER_ANSWER,
        build=build,
        read=lambda data: CoverageReply(answers=data),
    )


@lru_cache(maxsize=1)
def reason_grammar() -> ReplyGrammar[ReasonReply]:
    """Return the grammar of the call that words the reason of a score."""

    def build() -> "Term":
        from outlines.types import Regex
        from outlines.types.dsl import String

        return String('{"reason":') + Regex(TEXT_PATTERN) + "}"

    return ReplyGrammar(
        name="reason", max_tokens=_TOKENS_PER_REASON, build=build, read=ReasonReply.model_validate
    )


def _list_of(item: "Term", *, at_least: int, at_most: int) -> "Term":
    from outlines.types.dsl import String, between, optional

    more = between(max(at_least - 1, 0), at_most - 1, String(",") + item) if at_most > 1 else String("")
    items = item + more
    return items if at_least else optional(items)


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


_FIELD_NAMES = frozenset({"claims", "claim", "supported", "reason", "questions", "answers", "answered"})
