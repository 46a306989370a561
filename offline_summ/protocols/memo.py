"""Remembers what was drawn from a text, so that every summary of one source is asked the same questions.

Knows nothing of what it remembers.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")

_KEPT = 1024


class Memo(Generic[V]):
    """Makes a value once a key, also when many ask for it at once; forgets the oldest of many."""

    def __init__(self) -> None:
        """Begin with nothing remembered."""
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[V]]) -> V:
        """Return the value of `key`; who asks first makes it.

        If making fails or is cancelled, the next who waits makes it.
        """
        lock, waiting = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = lock, waiting + 1
        try:
            async with lock:
                if key not in self._values:
                    self.put(key, await make())
                return self._values[key]
        finally:
            lock, waiting = self._locks.pop(key)
            if waiting > 1:
                self._locks[key] = lock, waiting - 1

    def put(self, key: Hashable, value: V) -> None:
        """Remember a value that was made before."""
        self._values[key] = value
        if len(self._values) > _KEPT:
            self._values.popitem(last=False)
