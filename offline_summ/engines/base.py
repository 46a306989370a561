"""The seam between the protocols and whatever runs the judge: one request in, one completion out.

An engine maps every foreign exception to the errors of this package, and nothing else does. Knows nothing
of prompts, protocols or scores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from offline_summ.schemas import Network, Step

if TYPE_CHECKING:
    from outlines.types.dsl import Term

FinishReason = Literal["stop", "length", "repetition"]

SEED = 0


class Reply(Protocol):
    """The form a completion must have. `offline_summ.grammar.ReplyGrammar` is one."""

    @property
    def name(self) -> str:
        """Name of the form; equal names mean equal forms."""

    @property
    def max_tokens(self) -> int:
        """Tokens that the completion may take."""

    @property
    def min_tokens(self) -> int:
        """Tokens without which the completion is not worth asking for."""

    def output_type(self, *, bounded: bool = False) -> "Term":
        """Return the Outlines output type that constrains the completion.

        Args:
            bounded: whether texts in it end at a limit of characters, where the form has one.
        """


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
        begun: what already stands of the judge's reply; the completion goes on from there.
        thoughts: what the judge thought before `begun`, from the completion that began it.
        verdict_words: if the reply is one of these words and nothing else, the words; the completion then
            carries their probabilities, and its text is the likelier word. Their case does not
            matter, and no two of them may begin with the same character.
        temperature: 0 decodes greedily, as a score needs it; more is for tests of the grammars.
        seed: seed of the decoding; None draws from the engine's own.
    """

    step: Step
    messages: tuple[Message, ...]
    reply: Reply
    begun: str = ""
    thoughts: str | None = None
    verdict_words: tuple[str, ...] = ()
    temperature: float = 0.0
    seed: int | None = SEED


@dataclass(frozen=True)
class Completion:
    """What a judge replied.

    Attributes:
        text: the reply, or what follows what was begun.
        finish_reason: "stop" if the judge ended the reply, "length" if it was cut at the token limit,
            "repetition" if it was cut because it had begun to repeat itself.
        prompt_tokens: tokens of the request.
        cached_tokens: tokens of the request that came from the prefix cache.
        generated_tokens: tokens of the reply and of the thoughts.
        thoughts: what a reasoning judge thought before its reply; None for other judges.
        thought_tokens: tokens of the thoughts, a part of the generated ones.
        probabilities: for a request with verdict words, the probability of each; they add up to 1.
        reused: whether this is a copy of what an earlier request got, at no cost.
    """

    text: str
    finish_reason: FinishReason = "stop"
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    thoughts: str | None = None
    thought_tokens: int = 0
    probabilities: Mapping[str, float] | None = None
    reused: bool = False


@dataclass(frozen=True)
class Capacity:
    """What an engine works on at once.

    Attributes:
        requests: requests that it decodes at once.
        tokens: tokens of requests and replies that it holds at once, its prefix cache included; None if
            that is no limit.
    """

    requests: int = 64
    tokens: int | None = None


@dataclass(frozen=True)
class EngineRecord:
    """What an engine adds to the record of a run.

    Attributes:
        judge: name of the judge.
        engine: name of the engine.
        weights_sha256: digest of the judge's weights; None if there are none.
        dtype: number type that the judge computes in; None if it does not compute, or before it is loaded.
        grammar_backend: name of what holds the judge to its grammars; None if nothing does.
        versions: versions of the engine's packages.
        network: how the network of the engine was closed; None if it says nothing of that.
    """

    judge: str
    engine: str
    weights_sha256: str | None = None
    dtype: str | None = None
    grammar_backend: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    network: Network | None = None


class Asked(Protocol):
    """What a conversation needs of an engine."""

    @property
    def bounds_texts(self) -> bool:
        """Whether grammars end texts at their limit of characters."""

    async def generate(self, request: Request) -> Completion:
        """Ask the judge; see `Engine.generate`."""


class Engine(Protocol):
    """Runs a judge. All calls come from one event loop."""

    @property
    def record(self) -> EngineRecord:
        """What this engine adds to the record of a run."""

    @property
    def context_length(self) -> int | None:
        """Longest request and reply together, in tokens; None if unlimited."""

    @property
    def bounds_texts(self) -> bool:
        """Whether grammars end texts at their limit of characters."""

    @property
    def capacity(self) -> Capacity:
        """What it works on at once; asked for when it has started."""

    async def start(self) -> None:
        """Load the judge; does nothing if it is loaded.

        Raises:
            JudgeError: the judge cannot be loaded.
        """

    async def warm_up(self, replies: Sequence[Reply]) -> None:
        """Do ahead of the first request what these replies need, such as compiling their grammars.

        Raises:
            JudgeError: a grammar cannot be compiled.
        """

    async def generate(self, request: Request) -> Completion:
        """Ask the judge. May be called concurrently.

        Raises:
            ExampleError: kind `source_too_long`: the request leaves no room for a reply; `truncated_reply`:
                what was begun leaves none.
            JudgeStoppedError: the judge is gone, as after a crash; closed and started again, it may reply.
            JudgeError: the judge could not reply.
        """

    async def close(self) -> None:
        """Stop the judge and every process it started; does nothing if there is none."""

    def kill(self) -> None:
        """End every process of the judge at once. Called from any thread, when `close` does not return."""
