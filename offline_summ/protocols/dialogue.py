"""One example's conversation with an engine: asks, lets a cut reply go on, parses, and counts.

Shared by the protocols. Knows nothing of prompts' wording and of scores.
"""

import asyncio
import contextlib
import math
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, get_args

from offline_summ.engines.base import SEED, Asked, Completion, FinishReason, Message, Request
from offline_summ.errors import ExampleError, JudgeError
from offline_summ.grammar import ReplyGrammar, decision_grammar, piece
from offline_summ.prompts import Prompt
from offline_summ.reply_form import Resumption
from offline_summ.schemas import Step, Tokens

R = TypeVar("R")


@dataclass(frozen=True)
class Answer(Generic[R]):
    """A reply, and what was cut of it.

    Attributes:
        reply: the parsed reply.
        text: the reply as it was written.
        cut: names of the lists that ended, and of the texts that were closed, where the judge was cut.
        bounded: whether the grammar ended texts at their limit of characters.
    """

    reply: R
    text: str
    cut: frozenset[str]
    bounded: bool = False


class Dialogue:
    """Asks one engine the questions of one example.

    Attributes:
        step: the step that failed first, else the one that asked last, for the record of a failure.
        completions: every completion so far that had to be computed.
    """

    def __init__(self, engine: Asked, *, seed: int = SEED) -> None:
        """Begin with nothing asked."""
        self._engine = engine
        self._seed = seed
        self._asked: Step = "input"
        self._failed: Step | None = None
        self.completions: list[Completion] = []

    @property
    def step(self) -> Step:
        """The step that failed first, else the one that asked last."""
        return self._failed or self._asked

    @contextlib.contextmanager
    def during(self, step: Step) -> Iterator[None]:
        """Record what fails meanwhile as a failure of `step`; what is cancelled has not failed."""
        self._asked = step
        try:
            yield
        except Exception:
            self._failed = self._failed or step
            raise

    async def ask(self, step: Step, prompt: Prompt, grammar: ReplyGrammar[R]) -> Answer[R]:
        """Ask for a reply, and let a reply that was cut go on from where it stands.

        The reply gets further items while its budget lasts. Past that, lists end, and each verdict that is
        missing still gets a budget of its own.

        Raises:
            ExampleError: kind `truncated_reply`, `invalid_reply`, or `source_too_long`.
            JudgeError: the engine failed.
        """
        with self.during(step):
            return await self._ask(step, prompt, grammar)

    async def _ask(self, step: Step, prompt: Prompt, grammar: ReplyGrammar[R]) -> Answer[R]:
        messages = (Message("system", prompt.system), Message("user", prompt.user))
        request = Request(step=step, messages=messages, reply=grammar, seed=self._seed)
        cut: frozenset[str] = frozenset()
        spent = 0
        bounded = bool(getattr(self._engine, "bounds_texts", False))
        while True:
            completion = await self._generate(request)
            spent += completion.generated_tokens - completion.thought_tokens
            reply = request.begun + completion.text
            try:
                return Answer(grammar.parse(reply), reply, cut, bounded)
            except ExampleError as refusal:
                resumption = _resumption(grammar, reply, spent < grammar.max_tokens, refusal)
            if resumption is None or (resumption.following and resumption.kept == request.begun):
                raise _truncated(spent, completion.finish_reason)
            cut |= resumption.cut
            if not resumption.following:
                return Answer(grammar.parse(resumption.kept), resumption.kept, cut, bounded)
            request = replace(
                request,
                reply=piece(resumption.following),
                begun=resumption.kept,
                thoughts=request.thoughts if request.begun else completion.thoughts,
            )

    async def decide(self, step: Step, prompt: Prompt, words: tuple[str, ...]) -> Mapping[str, float]:
        """Ask for one of some words, and return the probability of each; they add up to 1.

        Raises:
            ExampleError: kind `source_too_long`.
            JudgeError: the engine failed, or gives no probabilities.
        """
        with self.during(step):
            return await self._decide(step, prompt, words)

    async def _decide(self, step: Step, prompt: Prompt, words: tuple[str, ...]) -> Mapping[str, float]:
        messages = (Message("system", prompt.system), Message("user", prompt.user))
        request = Request(
            step=step,
            messages=messages,
            reply=decision_grammar(words),
            verdict_words=words,
            seed=self._seed,
        )
        found = (await self._generate(request)).probabilities
        if found is None:
            raise JudgeError(
                "The engine gives no probabilities, which protocol 'itemized' decides by.",
                "Choose protocol 'joint', or another engine.",
            )
        if set(found) != set(words):
            raise JudgeError(
                f"The engine was asked for the probabilities of {', '.join(map(repr, words))}, "
                f"and gave those of {', '.join(map(repr, found)) or 'nothing'}.",
                "Give each verdict word its probability, as `Request.verdict_words` spells it.",
            )
        if not all(0 <= p <= 1 for p in found.values()) or not math.isclose(
            sum(found.values()), 1, abs_tol=1e-3
        ):
            raise JudgeError(
                f"The engine's probabilities of {', '.join(map(repr, words))} are not from 0 to 1, "
                "or do not add up to 1.",
                "Renormalise them over the verdict words.",
            )
        return found

    async def _generate(self, request: Request) -> Completion:
        try:
            completion = _checked(await self._engine.generate(request))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                raise JudgeError("The engine cancelled the request by itself.") from None
            raise
        if not completion.reused:
            self.completions.append(completion)
        return completion

    @property
    def tokens(self) -> Tokens:
        """Token counts over all completions."""
        return Tokens(
            prompt=sum(c.prompt_tokens for c in self.completions),
            cached=sum(c.cached_tokens for c in self.completions),
            generated=sum(c.generated_tokens for c in self.completions),
        )


async def together(*asked: Coroutine[Any, Any, Any]) -> list[Any]:
    """Wait for all of these at once, and return what they return, in order.

    If one fails, the others are cancelled, and its exception is raised.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_carried(each)) for each in asked]
    except ExceptionGroup as failures:
        first = failures.exceptions[0]
        raise (first.request if isinstance(first, _ExitRequest) else first) from None
    return [task.result() for task in tasks]


class _ExitRequest(Exception):
    """An exit request on its way out of a task: raised as itself, it would end the loop around all tasks."""

    def __init__(self, request: BaseException) -> None:
        self.request = request


async def _carried(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await coroutine
    except (KeyboardInterrupt, SystemExit) as request:
        raise _ExitRequest(request) from None


def _checked(completion: object) -> Completion:
    """Refuse what an engine of somebody else's may return by mistake."""
    if (
        isinstance(completion, Completion)
        and isinstance(completion.text, str)
        and completion.finish_reason in get_args(FinishReason)
        and all(
            type(count) is int and count >= 0
            for count in (
                completion.prompt_tokens,
                completion.cached_tokens,
                completion.generated_tokens,
                completion.thought_tokens,
            )
        )
    ):
        return completion
    raise JudgeError(
        f"The engine returned no well-formed Completion, but a {type(completion).__name__}."
        if not isinstance(completion, Completion)
        else "The engine returned a Completion with a text, finish reason or count of the wrong type."
    )


def _resumption(grammar: ReplyGrammar[R], reply: str, more: bool, refusal: ExampleError) -> Resumption | None:
    """Return how a reply that does not parse goes on; raise the refusal if it is no beginning of a reply."""
    try:
        return grammar.resume(reply, more=more)
    except ExampleError:
        raise refusal from None


def _truncated(tokens: int, finish_reason: FinishReason) -> ExampleError:
    how = "repeats itself and was stopped" if finish_reason == "repetition" else "was cut"
    return ExampleError(
        "truncated_reply",
        f"The judge's reply {how} after {tokens} tokens, and cannot go on from there.",
        "Use a stronger judge, a shorter text, or fewer questions.",
    )
