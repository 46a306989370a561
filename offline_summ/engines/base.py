"""The seam between the protocols and whatever runs the judge: one request in, one completion out.

An engine maps every foreign exception to the errors of this package, and nothing else does. Knows nothing
of prompts, protocols or scores.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from offline_summ.schemas import Step

if TYPE_CHECKING:
    from outlines.types.dsl import Term

SEED = 0


class Reply(Protocol):
    """The form a completion must have. `offline_summ.grammar.ReplyGrammar` is one."""

    @property
    def name(self) -> str:
        """Name of the form; equal names mean equal forms."""

    @property
    def max_tokens(self) -> int:
        """Tokens that the completion may take."""

    def output_type(self) -> "Term":
        """Return the Outlines output type that constrains the completion."""


@dataclass(frozen=True)
class Message:
    """One chat message. Its content is encoded as plain text: no control token in it takes effect."""

    role: Literal["system", "user"]
    content: str


@dataclass(frozen=True)
class Request:
    """What a judge is asked.

    Attributes:
        step: the step of the protocol that asks.
        messages: the chat, in order.
        reply: the form that the completion must have.
        verdict_words: if the reply is one of these words and nothing else, the words; the completion then
            carries their probabilities. No two of them may begin with the same character.
        seed: seed of the decoding, which is greedy.
    """

    step: Step
    messages: tuple[Message, ...]
    reply: Reply
    verdict_words: tuple[str, ...] = ()
    seed: int = SEED


@dataclass(frozen=True)
class Completion:
    """What a judge replied.

    Attributes:
        text: the reply.
        finish_reason: "stop" if the reply is complete, "length" if it was cut at the token limit.
        prompt_tokens: tokens of the request.
        cached_tokens: tokens of the request that came from the prefix cache.
        generated_tokens: tokens of the reply.
        probabilities: for a request with verdict words, the probability of each; they add up to 1.
    """

    text: str
    finish_reason: Literal["stop", "length"] = "stop"
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    probabilities: Mapping[str, float] | None = None


@dataclass(frozen=True)
class EngineRecord:
    """What an engine adds to the record of a run.

    Attributes:
        judge: name of the judge.
        engine: name of the engine.
        weights_sha256: digest of the judge's weights; None if there are none.
        versions: versions of the engine's packages.
    """

    judge: str
    engine: str
    weights_sha256: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """Runs a judge. All calls come from one event loop."""

    @property
    def record(self) -> EngineRecord:
        """What this engine adds to the record of a run."""

    @property
    def context_length(self) -> int | None:
        """Longest request and reply together, in tokens; None if unlimited."""

    async def start(self) -> None:
        """Load the judge; does nothing if it is loaded.

        Raises:
            JudgeError: the judge cannot be loaded.
        """

    async def generate(self, request: Request) -> Completion:
        """Ask the judge. May be called concurrently.

        Raises:
            ExampleError: kind `source_too_long`: the request leaves no room for a reply.
            JudgeError: the judge could not reply.
        """

    async def close(self) -> None:
        """Stop the judge and every process it started; does nothing if there is none."""

    def kill(self) -> None:
        """End every process of the judge at once. Called from any thread, when `close` does not return."""
