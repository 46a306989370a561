"""One engine that many examples ask at once: equal requests are asked once.

Knows nothing of examples and protocols.
"""

import asyncio
import hashlib
from collections import OrderedDict
from dataclasses import dataclass, replace

from offline_summ.engines.base import Completion, Engine, Request
from offline_summ.loop import Done, carried

_REMEMBERED = 4096


@dataclass
class _Asked:
    """A request on its way: its task, and how many wait for it."""

    task: "asyncio.Task[Done[Completion]]"
    waiting: int = 0


class SharedEngine:
    """Passes requests on to an engine, each distinct one once.

    Decoding is greedy with a fixed seed, so that a second answer to the same request would be the first one
    again. Failures are not remembered. Belongs to one event loop.

    Args:
        engine: the engine.
    """

    def __init__(self, engine: Engine) -> None:
        """Begin with nothing asked."""
        self._engine = engine
        self._asked: dict[bytes, _Asked] = {}
        self._answers: OrderedDict[bytes, Completion] = OrderedDict()

    @property
    def bounds_texts(self) -> bool:
        """Whether the engine's grammars end texts at their limit of characters."""
        return bool(getattr(self._engine, "bounds_texts", False))

    async def generate(self, request: Request) -> Completion:
        """Return the engine's completion, or what it replied to the same request before.

        Raises:
            OfflineSummError: as the engine's own `generate`.
        """
        key = _digest(request)
        if (known := self._answers.get(key)) is not None:
            self._answers.move_to_end(key)
            return replace(known, reused=True)
        asked = self._asked.get(key)
        first = asked is None
        if asked is None:
            # A task of its own, which goes on for the others if the one who asked first gives up.
            asked = self._asked[key] = _Asked(asyncio.create_task(self._ask(key, request)))
        asked.waiting += 1
        try:
            completion = (await asyncio.shield(asked.task)).get()
        finally:
            asked.waiting -= 1
            if not asked.waiting:
                asked.task.cancel()
                self._forget(key, asked)
        return (
            completion
            if first or not isinstance(completion, Completion)
            else replace(completion, reused=True)
        )

    async def _ask(self, key: bytes, request: Request) -> Done[Completion]:
        asked = self._asked[key]
        try:
            done = await carried(self._engine.generate(request))
        finally:
            self._forget(key, asked)
        if isinstance(done.value, Completion):
            self._remember(key, done.value)
        return done

    def _forget(self, key: bytes, asked: _Asked) -> None:
        if self._asked.get(key) is asked:
            del self._asked[key]

    def _remember(self, key: bytes, completion: Completion) -> None:
        self._answers[key] = completion
        if len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)


def _digest(request: Request) -> bytes:
    """Return what tells requests apart: all that the judge sees, and the form of its reply."""
    parts = (
        *(f"{message.role}:{message.content}" for message in request.messages),
        request.reply.name,
        request.begun,
        repr((request.thoughts, request.verdict_words, request.temperature, request.seed)),
    )
    whole = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        whole.update(len(encoded).to_bytes(8, "big"))
        whole.update(encoded)
    return whole.digest()
