"""A judge that is loaded once, used from any thread, and stopped for good.

Knows nothing of what the judge is asked.
"""

import asyncio
import atexit
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from offline_summ.engines.base import Engine, Reply
from offline_summ.engines.choice import INTERRUPT_TIMEOUT_S, shut_down
from offline_summ.errors import JudgeError, OfflineSummError
from offline_summ.loop import LoopThread
from offline_summ.weights_files import OnProgress, Progress

T = TypeVar("T")

_CLOSE_TIMEOUT_S = 10.0
_MOST_STOPS = 3


class Session:
    """Runs coroutines that ask one judge, in a loop of its own.

    Attributes:
        engine: runs the judge.
        generation: how often the engine was given up after it had stopped by itself.
        alone: held by an example that is suspected of having stopped it.
    """

    def __init__(self, engine: Engine, on_progress: OnProgress) -> None:
        """Load nothing yet.

        Args:
            engine: runs the judge.
            on_progress: told about the loading, from any thread.
        """
        self.engine = engine
        self.generation = 0
        self._stops = 0
        self._on_progress = on_progress
        self._started = False
        self._failures = 0
        self._failure: OfflineSummError | None = None
        self._start_lock = asyncio.Lock()
        self.alone = asyncio.Lock()
        self._loop = LoopThread()
        self._close_lock = threading.Lock()
        # Stops the judge at the end of the program for those who forget to.
        self._finalizer = weakref.finalize(
            self, shut_down, self._loop, self.engine, self._close_lock, _CLOSE_TIMEOUT_S
        )

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` and wait for its result; see `LoopThread.run`."""
        return self._loop.run(coroutine)

    async def run_from_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` and await its result from a loop of the caller's own."""
        return await self._loop.run_from_loop(coroutine)

    async def start(self, replies: Callable[[], Sequence[Reply]], stage: str) -> None:
        """Load the judge, unless it is loaded. Those who wait while loading fails get its failure too.

        Args:
            replies: called once the weights are known; returns the replies to prepare for, or refuses.
            stage: what comes next, for the progress.

        Raises:
            WeightsError: its weights are not on this machine, or not what they should be.
            JudgeError: it cannot be loaded, or keeps stopping without an example scored in between.
        """
        failures = self._failures
        async with self._start_lock:
            if self._started:
                return
            if self._stops > _MOST_STOPS:
                raise JudgeError(
                    f"The judge stopped {self._stops} times, and no example was scored in between.",
                    "See its log.",
                )
            if self._failure is not None and self._failures > failures:
                raise self._failure
            try:
                await self._load(replies)
            except OfflineSummError as error:
                self._failure, self._failures = error, self._failures + 1
                raise
            self._started, self._failure = True, None
            self._on_progress(Progress(stage, 0, None, None))

    async def give_up(self, generation: int) -> None:
        """Close an engine that stopped by itself, so that the next start loads the judge again.

        Args:
            generation: the generation that was seen to stop; if another caller gave it up already, nothing
                is done.
        """
        async with self._start_lock:
            if generation == self.generation:
                self._started, self.generation, self._stops = False, self.generation + 1, self._stops + 1
                await self.engine.close()

    def proven(self) -> None:
        """Note that the engine works: an example was scored."""
        self._stops = 0

    async def _load(self, replies: Callable[[], Sequence[Reply]]) -> None:
        self._on_progress(Progress(f"loading judge {self.engine.record.judge!r}", 0, None, None))
        await self.engine.start()
        asked = replies()
        # Registered after the engine's own imports, so that it runs before theirs: the exit handler
        # of multiprocessing waits for the engine's processes.
        atexit.register(self._finalizer)
        self._on_progress(Progress("preparing grammars", 0, None, None))
        await self.engine.warm_up(asked)

    def close(self, *, interrupted: bool = False) -> None:
        """Stop the judge, at once if the program is being interrupted. A later start loads it again."""
        self._started, self._stops = False, 0
        atexit.unregister(self._finalizer)
        timeout = INTERRUPT_TIMEOUT_S if interrupted else _CLOSE_TIMEOUT_S
        shut_down(self._loop, self.engine, self._close_lock, timeout)
        self._start_lock, self.alone = asyncio.Lock(), asyncio.Lock()  # the next start has another loop

    def __enter__(self) -> "Session":
        """Return the session."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop the judge; at once if the program is being interrupted."""
        self.close(interrupted=kind is not None and not issubclass(kind, Exception))
