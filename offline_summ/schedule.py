"""Which of many examples is scored when: as many at once as keep the engine busy, one source after another.

There is no barrier: an example starts as soon as there is room for it. Belongs to one event loop. Knows
nothing of judges' replies and of files.
"""

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from offline_summ.engines.base import Capacity
from offline_summ.loop import Done, carried
from offline_summ.rows import Row
from offline_summ.schemas import Protocol, SummarizationResult

_REQUESTS_AT_ONCE = {"joint": 1, "itemized": 4}
_SURPLUS = 1.25
_SHARE_OF_TOKENS = 0.75
_BYTES_PER_TOKEN = 3
_TOKENS_OF_PROMPTS = 600
_WINDOW_ROWS = 4096
_WINDOW_CHARACTERS = 64_000_000
_UNREAD_RESULTS = 1024
_HELD_RESULTS = 4096

ScoreRow = Callable[[Row], Coroutine[Any, Any, SummarizationResult]]


@dataclass(frozen=True)
class Room:
    """How many examples are scored at once.

    Attributes:
        examples: most examples.
        tokens: most tokens of their texts, each source counted once; None is no limit. One example is
            scored in any case.
    """

    examples: int
    tokens: int | None = None


def room_for(capacity: Capacity, protocol: Protocol, concurrency: int | None = None) -> Room:
    """Return how many examples keep an engine busy.

    A quarter more than it decodes at once, so that one waits whenever one ends; and no more texts than fit
    three quarters of its cache, so that what examples share stays there while they need it.

    Args:
        capacity: of the engine.
        protocol: how many requests an example has on the way at once depends on it.
        concurrency: most examples; None goes by the capacity.
    """
    tokens = None if capacity.tokens is None else int(_SHARE_OF_TOKENS * capacity.tokens)
    if concurrency is not None:
        return Room(concurrency, None)
    return Room(max(1, math.ceil(_SURPLUS * capacity.requests / _REQUESTS_AT_ONCE[protocol])), tokens)


class Schedule:
    """Scores rows as they are put in, and hands out their results.

    Args:
        score: scores one row. What it raises ends the schedule.
        room: how many at once.
        ordered: whether results come out in the order of the rows, instead of as they are finished.
    """

    def __init__(self, score: ScoreRow, room: Room, *, ordered: bool = False) -> None:
        """Begin with no row."""
        self._score = score
        self._room = room
        self._ordered = ordered
        self._waiting: OrderedDict[str, deque[tuple[int, Row]]] = OrderedDict()
        self._waiting_rows = self._waiting_characters = 0
        self._last_source = ""
        self._running: dict[asyncio.Task[Done[SummarizationResult]], tuple[int, Row]] = {}
        self._texts: dict[str, int] = {}
        self._tokens = 0
        self._put = self._given = 0
        self._held: dict[int, SummarizationResult] = {}
        self._finished: list[SummarizationResult] = []
        self._error: BaseException | None = None
        self._ended = False
        self._end: BaseException | None = None
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()

    @property
    def running(self) -> int:
        """Number of examples being scored."""
        return len(self._running)

    async def put(self, rows: Sequence[Row]) -> None:
        """Add rows; waits while many of them have not been started yet."""
        for row in rows:
            self._waiting.setdefault(row.source, deque()).append((self._put, row))
            self._put += 1
            self._waiting_rows += 1
            self._waiting_characters += len(row.source) + len(row.summary)
        self._start_some()
        while not self._error and (
            self._waiting_rows >= _WINDOW_ROWS or self._waiting_characters >= _WINDOW_CHARACTERS
        ):
            self._has_room.clear()
            await self._has_room.wait()

    def end(self, error: BaseException | None = None) -> None:
        """Say that no row follows. `error` is what kept others from coming: `get` raises it at the end."""
        self._ended, self._end = True, error
        self._changed.set()

    async def get(self) -> list[SummarizationResult]:
        """Wait for results and return all that are there; an empty list is the end.

        Raises:
            Exception: what scoring a row raised, after the results that are there; what kept further rows
                from coming, after all results.
        """
        while not self._finished:
            if self._error is not None:
                raise self._error
            if self._ended and not self._waiting and not self._running:
                if self._end is not None:
                    raise self._end
                return []
            self._changed.clear()
            await self._changed.wait()
        results, self._finished = self._finished, []
        self._start_some()
        return results

    def stop(self) -> None:
        """Cancel what runs and forget what waits."""
        self._ended = True
        self._forget_waiting()
        for task in self._running:
            task.cancel()
        self._changed.set()

    def _start_some(self) -> None:
        while self._waiting and self._error is None and self._may_start():
            number, row = self._next()
            task = asyncio.get_running_loop().create_task(self._scored(row))
            self._running[task] = number, row
            self._take(row)
            task.add_done_callback(self._on_done)
        self._has_room.set()

    async def _scored(self, row: Row) -> Done[SummarizationResult]:
        return await carried(self._score(row))

    def _may_start(self) -> bool:
        if len(self._finished) >= _UNREAD_RESULTS:
            return False
        if not self._running:
            return True
        if len(self._running) >= self._room.examples:
            return False
        number, row = self._peek()
        if len(self._held) >= _HELD_RESULTS and number != self._given:
            return False
        return self._room.tokens is None or self._tokens + self._cost(row) <= self._room.tokens

    def _peek(self) -> tuple[int, Row]:
        """Return the next row: of the source of the last one, unless others have waited for too long."""
        if len(self._held) >= _HELD_RESULTS // 2:
            return min((rows[0] for rows in self._waiting.values()), key=lambda each: each[0])
        patient = next(iter(self._waiting.values()))[0]
        if self._last_source not in self._waiting:
            return patient
        again = self._waiting[self._last_source][0]
        return again if again[0] - patient[0] < _WINDOW_ROWS // 4 else patient

    def _next(self) -> tuple[int, Row]:
        """Take the next row."""
        source = self._last_source = self._peek()[1].source
        rows = self._waiting[source]
        number, row = rows.popleft()
        if rows:
            self._waiting.move_to_end(source)  # those that have waited longest come first
        else:
            del self._waiting[source]
        self._waiting_rows -= 1
        self._waiting_characters -= len(row.source) + len(row.summary)
        return number, row

    def _cost(self, row: Row) -> int:
        own = _tokens_of(row.summary) + _TOKENS_OF_PROMPTS
        return own if row.source in self._texts else own + _tokens_of(row.source)

    def _take(self, row: Row) -> None:
        self._tokens += self._cost(row)
        self._texts[row.source] = self._texts.get(row.source, 0) + 1

    def _release(self, row: Row) -> None:
        self._texts[row.source] -= 1
        if not self._texts[row.source]:
            del self._texts[row.source]
        self._tokens -= self._cost(row)

    def _on_done(self, task: "asyncio.Task[Done[SummarizationResult]]") -> None:
        number, row = self._running.pop(task)
        self._release(row)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._fail(error)
            return
        try:
            self._finish(number, task.result().get())
        except (KeyboardInterrupt, SystemExit) as exit_request:
            self._fail(exit_request)
            return
        self._start_some()

    def _finish(self, number: int, result: SummarizationResult) -> None:
        if not self._ordered:
            self._finished.append(result)
        else:
            self._held[number] = result
            while self._given in self._held:
                self._finished.append(self._held.pop(self._given))
                self._given += 1
        if self._finished or (self._ended and not self._running):
            self._changed.set()

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._forget_waiting()
        for task in self._running:
            task.cancel()
        self._changed.set()

    def _forget_waiting(self) -> None:
        self._waiting.clear()
        self._waiting_rows = self._waiting_characters = 0
        self._has_room.set()


def _tokens_of(text: str) -> int:
    """Estimate the tokens of a text: three bytes of UTF-8 each, in every script."""
    return len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN
