"""One example's conversation with an engine: asks, parses, and counts.

Shared by the protocols. Knows nothing of prompts' wording and of scores.
"""

from typing import TypeVar

from offline_summ.engines.base import SEED, Completion, Engine, Message, Request
from offline_summ.errors import ExampleError
from offline_summ.grammar import ReplyGrammar
from offline_summ.prompts import Prompt
from offline_summ.schemas import Step, Tokens

R = TypeVar("R")


class Dialogue:
    """Asks one engine the questions of one example.

    Attributes:
        step: the step that asked last, for the record of a failure.
        completions: every completion so far.
    """

    def __init__(self, engine: Engine, *, seed: int = SEED) -> None:
        """Begin with nothing asked."""
        self._engine = engine
        self._seed = seed
        self.step: Step = "input"
        self.completions: list[Completion] = []

    async def ask(self, step: Step, prompt: Prompt, grammar: ReplyGrammar[R]) -> R:
        """Ask once and return the parsed reply.

        Raises:
            ExampleError: kind `truncated_reply`, `invalid_reply`, or `source_too_long`.
            JudgeError: the engine failed.
        """
        self.step = step
        completion = await self._engine.generate(
            Request(
                step=step,
                messages=(Message("system", prompt.system), Message("user", prompt.user)),
                reply=grammar,
                seed=self._seed,
            )
        )
        self.completions.append(completion)
        if completion.finish_reason == "length":
            raise ExampleError(
                "truncated_reply",
                f"The judge's reply was cut after {completion.generated_tokens} tokens.",
                "Use a stronger judge, a shorter text, or fewer questions.",
            )
        return grammar.parse(completion.text)

    @property
    def tokens(self) -> Tokens:
        """Token counts over all completions."""
        return Tokens(
            prompt=sum(c.prompt_tokens for c in self.completions),
            cached=sum(c.cached_tokens for c in self.completions),
            generated=sum(c.generated_tokens for c in self.completions),
        )
