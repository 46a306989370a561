"""An event loop in a thread of its own, so that one engine serves synchronous and asynchronous callers alike.

An asynchronous engine belongs to the loop that started it, and a caller may have no loop, or another one
each time. Knows nothing of the rest of the package.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines in one background event loop. The thread starts with the first of them."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Schedule `coroutine` from any thread."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # A daemon, so that an engine that blocks cannot hold the exit of the program.
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="offline-summ", daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` and wait for its result; an interrupt of the waiting thread cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def run_from_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` in the background loop and await its result from the caller's own."""
        return await asyncio.wrap_future(self.submit(coroutine))

    def stop(self, timeout: float) -> None:
        """End the loop and its thread; a thread that is still busy after `timeout` seconds is left behind."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout)
        if not thread.is_alive():
            loop.close()
