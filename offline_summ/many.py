"""Many examples, scored as they come: an iterator of results, synchronous and asynchronous.

Knows nothing of files.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from offline_summ.engines.base import Capacity
from offline_summ.engines.shared import SharedEngine
from offline_summ.errors import UsageError
from offline_summ.loop import closed_while_scoring
from offline_summ.rows import Columns, Row, row_of
from offline_summ.runner import ExampleRunner
from offline_summ.schedule import Schedule, room_for
from offline_summ.schemas import Example, Failure, InputRow, Protocol, SummarizationResult
from offline_summ.session import Session

ScoredInput = Example | Row | Mapping[str, Any] | tuple[str | Sequence[str], str]
"""One example: an `Example`, a pair of source and summary, or a mapping with the keys `source`, `summary`
and, if wanted, `id` and `questions`."""

_ROWS_READ_AHEAD = 256
_COLUMNS = Columns()


class ScoredMany:
    """Results of many examples; iterate over it once, with `for` or `async for`.

    Args:
        examples: the examples; asked for as there is room, so that they may come from a generator without
            end. One that is not as it should be has a result with the failure `unreadable_input`.
        session: the judge.
        runner: scores one example.
        protocol: how the judge is asked.
        concurrency: most examples at once; None goes by what the engine works on at once.
        ordered: whether results come in the order of the examples, instead of as they are finished.

    Raises:
        UsageError: `concurrency` is not a positive number, or `examples` cannot be iterated over.
    """

    def __init__(
        self,
        examples: Iterable[ScoredInput] | AsyncIterable[ScoredInput],
        session: Session,
        runner: ExampleRunner,
        protocol: Protocol,
        *,
        concurrency: int | None = None,
        ordered: bool = False,
    ) -> None:
        """Start nothing yet."""
        if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
            raise UsageError(f"concurrency is {concurrency!r}.", "Give a positive whole number, or None.")
        if isinstance(examples, str | bytes | Mapping) or not hasattr(examples, "__iter__") | hasattr(
            examples, "__aiter__"
        ):
            raise UsageError(
                f"examples is of type {type(examples).__name__}.", "Give a list or a generator of examples."
            )
        self._examples = examples
        self._session = session
        self._runner = runner
        self._protocol: Protocol = protocol
        self._concurrency = concurrency
        self._ordered = ordered
        self._engine = SharedEngine(session.engine)
        self._schedule: Schedule | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: _Reader | None = None
        self._feeder: asyncio.Task[None] | None = None
        self._numbers = 0

    def __iter__(self) -> Iterator[SummarizationResult]:
        """Yield results.

        Raises:
            UsageError: the examples come asynchronously.
            JudgeError: the judge cannot be loaded, or keeps stopping.
        """
        for results in self.chunks():
            yield from results

    def chunks(self) -> Iterator[list[SummarizationResult]]:
        """Yield all results that are there, each time that there are some; raises what `__iter__` raises."""
        if not isinstance(self._examples, Iterable):
            raise UsageError("The examples come asynchronously.", "Use `async for`.")
        schedule = self._session.run(self._open(iter(self._examples)))
        try:
            while results := self._session.run(self._get(schedule)):
                yield results
        finally:
            self._session.run(self._close())

    async def __aiter__(self) -> AsyncIterator[SummarizationResult]:
        """Yield results, as `__iter__` does."""
        given = iter(self._examples) if isinstance(self._examples, Iterable) else None
        schedule = await self._session.run_from_loop(self._open(given))
        feeder = None if given is not None else asyncio.create_task(self._feed_from_loop(schedule))
        try:
            while results := await self._session.run_from_loop(self._get(schedule)):
                for result in results:
                    yield result
        finally:
            if feeder is not None:
                feeder.cancel()
            await self._session.run_from_loop(self._close())

    async def _open(self, examples: Iterator[ScoredInput] | None) -> Schedule:
        if self._schedule is not None:
            raise UsageError("These results have been iterated over.", "Call score_many again.")
        await self._runner.start()
        self._loop = asyncio.get_running_loop()
        capacity = getattr(self._session.engine, "capacity", Capacity())
        room = room_for(capacity, self._protocol, self._concurrency)
        self._schedule = Schedule(self._score, room, ordered=self._ordered)
        if examples is not None:
            self._reader = _Reader(examples, asyncio.get_running_loop())
            self._feeder = asyncio.create_task(self._feed(self._schedule, self._reader))
        return self._schedule

    async def _get(self, schedule: Schedule) -> list[SummarizationResult]:
        if asyncio.get_running_loop() is not self._loop:
            raise closed_while_scoring()
        return await schedule.get()

    async def _close(self) -> None:
        if self._reader is not None:
            self._reader.stop()
        if asyncio.get_running_loop() is not self._loop:
            return  # what ran was cancelled when the scorer was closed
        if self._feeder is not None:
            self._feeder.cancel()
        if self._schedule is not None:
            self._schedule.stop()

    async def _feed(self, schedule: Schedule, reader: "_Reader") -> None:
        while True:
            taken, error = await reader.take()
            await schedule.put([self._row(example) for example in taken])
            reader.make_room(len(taken))
            if not taken:
                return schedule.end(error)

    async def _feed_from_loop(self, schedule: Schedule) -> None:
        """Take examples in the caller's loop, which they belong to."""
        error: Exception | None = None
        try:
            async for example in self._examples:  # type: ignore[union-attr]
                await self._session.run_from_loop(schedule.put([self._row(example)]))
        except Exception as failure:  # noqa: BLE001 - whatever it is, it goes to whoever iterates
            error = failure
        await self._session.run_from_loop(_ended(schedule, error))

    def _row(self, example: ScoredInput) -> Row:
        self._numbers += 1
        if isinstance(example, Row):
            return example
        if isinstance(example, Example):
            example = example.model_dump()
        elif isinstance(example, tuple | list) and len(example) == 2:
            example = {"source": example[0], "summary": example[1]}
        return row_of(self._numbers, example, _COLUMNS)

    async def _score(self, row: Row) -> SummarizationResult:
        place = InputRow(number=row.number, text_sha256=row.text_sha256, settings_sha256=row.settings_sha256)
        if row.problem is not None:
            failure = Failure(kind="unreadable_input", message=row.problem, step="input")
            return self._runner.failed(failure, id=row.id, row=place)
        example = Example(id=row.id, source=row.source, summary=row.summary)
        try:
            questions = self._runner.questions(row.questions)
        except UsageError as error:
            raise UsageError(f"Row {row.number}: {error.message}", error.hint) from None
        return await self._runner.score(example, questions, engine=self._engine, row=place)


class _Reader:
    """Takes examples in a thread of its own, for what they come from may block, and hands on each at once."""

    def __init__(self, examples: Iterator[ScoredInput], loop: asyncio.AbstractEventLoop) -> None:
        self._examples = examples
        self._loop = loop
        self._taken: list[ScoredInput] = []
        self._error: BaseException | None = None
        self._stopped = False
        self._ended = False
        self._room = threading.Semaphore(_ROWS_READ_AHEAD)
        self._lock = threading.Lock()
        self._come = asyncio.Event()
        threading.Thread(target=self._read, name="offline-summ-reader", daemon=True).start()

    def _read(self) -> None:
        try:
            while self._room.acquire() and not self._stopped:
                self._hand_on(next(self._examples))
        except StopIteration:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, it goes to whoever iterates
            self._error = error
        self._ended = True
        self._tell()

    def _hand_on(self, example: ScoredInput) -> None:
        with self._lock:
            self._taken.append(example)
            first = len(self._taken) == 1
        if first:
            self._tell()

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._come.set)

    async def take(self) -> tuple[list[ScoredInput], BaseException | None]:
        """Wait for examples and return all that have come; none is the end, with what kept others back."""
        while True:
            await self._come.wait()
            self._come.clear()
            ended = self._ended
            with self._lock:
                taken, self._taken = self._taken, []
            if ended:
                self._come.set()
            if taken or ended:
                return taken, None if taken else self._error

    def make_room(self, count: int) -> None:
        """Let the thread take further examples."""
        self._room.release(count or 1)

    def stop(self) -> None:
        """Take no more."""
        self._stopped = True
        self._room.release()


async def _ended(schedule: Schedule, error: Exception | None) -> None:
    schedule.end(error)
