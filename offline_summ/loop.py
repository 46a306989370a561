"""An event loop in a thread of its own, so that one engine serves synchronous and asynchronous callers alike.

An asynchronous engine belongs to the loop that started it, and a caller may have no loop, or another one
each time. Knows nothing of judges and examples.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from offline_summ.errors import JudgeError, UsageError

T = TypeVar("T")


@dataclass(frozen=True)
class Done(Generic[T]):
    """What a coroutine came to. An exit request is carried as a value: raised, it would end the loop."""

    value: T | None = None
    exit: BaseException | None = None

    def get(self) -> T:
        """Return the value, or raise the exit request."""
        if self.exit is not None:
            raise self.exit
        return self.value  # type: ignore[return-value]


class LoopThread:
    """Runs coroutines in one background event loop. The thread starts with the first of them."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0

    @property
    def is_running(self) -> bool:
        """Whether the thread was started, in this process, and not stopped."""
        return self._loop is not None and self._process == os.getpid()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[Done[T]]":
        """Schedule `coroutine` from any thread but the loop's own.

        Raises:
            UsageError: called from the loop's own thread, or in a fork of the process that started the loop.
        """
        with self._lock:
            if self._loop is None:
                self._loop, self._process = asyncio.new_event_loop(), os.getpid()
                # A daemon, so that an engine that blocks cannot hold the exit of the program.
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="offline-summ", daemon=True
                )
                self._thread.start()
            refusal = self._refusal()
            if refusal is None:
                return asyncio.run_coroutine_threadsafe(carried(coroutine), self._loop)
        coroutine.close()
        raise refusal

    def _refusal(self) -> UsageError | None:
        if self._process != os.getpid():
            return UsageError("A scorer was used after a fork.", "Make a scorer in each process.")
        if threading.current_thread() is self._thread:
            return UsageError("A scorer was called from inside itself.", "Use another scorer there.")
        return None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` and wait for its result; an interrupt of the waiting thread cancels it.

        Raises:
            JudgeError: the loop was stopped meanwhile.
        """
        future = self.submit(coroutine)
        try:
            return future.result().get()
        except CancelledError:
            raise closed_while_scoring() from None
        except BaseException:
            future.cancel()
            raise

    async def run_from_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` in the background loop and await its result from the caller's own.

        Raises:
            JudgeError: the loop was stopped meanwhile.
        """
        try:
            return (await asyncio.wrap_future(self.submit(coroutine))).get()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise closed_while_scoring() from None

    def stop(self, timeout: float) -> None:
        """Cancel what still runs, and end the loop and its thread.

        A thread that is still busy after `timeout` seconds is left behind.
        """
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            if loop is None or thread is None or self._process != os.getpid():
                return
        asyncio.run_coroutine_threadsafe(_cancel_all(loop), loop)
        thread.join(timeout)
        if not thread.is_alive():
            loop.close()


async def carried(coroutine: Coroutine[Any, Any, T]) -> Done[T]:
    """Await `coroutine` and return what it came to; other exceptions than exit requests are raised."""
    try:
        return Done(value=await coroutine)
    except (KeyboardInterrupt, SystemExit) as exit_request:
        return Done(exit=exit_request)


async def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    loop.call_soon(loop.stop)


def closed_while_scoring() -> JudgeError:
    """Return the error of those who wait for what a stopped loop was doing."""
    return JudgeError("The scorer was closed while it was scoring.", "Close it when all results are there.")


async def in_thread(call: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Call something of the user's in a thread, so that it may block.

    Raises:
        RuntimeError: it raised StopIteration, which no future can carry: whoever waits would wait for ever.
    """

    def carrying() -> T:
        try:
            return call(*arguments, **named)
        except StopIteration as error:
            raise RuntimeError(f"{getattr(call, '__name__', 'a function')} raised StopIteration") from error

    return await asyncio.to_thread(carrying)
