"""Which example is scored when."""

import asyncio

import pytest

from offline_summ.engines.base import Capacity
from offline_summ.rows import Row
from offline_summ.schedule import Room, Schedule, room_for


def rows(*sources):
    return [Row(number, source=source, summary="T.") for number, source in enumerate(sources, start=1)]


class Scorer:
    """Scores a row when told to; a result is the number of its row."""

    def __init__(self):
        self.begun, self.most, self.gates = [], 0, {}

    async def __call__(self, row):
        self.begun.append(row.number)
        gate = self.gates[row.number] = asyncio.Event()
        self.most = max(self.most, len(self.gates))
        try:
            await gate.wait()
        finally:
            del self.gates[row.number]
        return row.number

    async def finish(self, *numbers):
        for number in numbers:
            self.gates[number].set()
            await ticks()


async def ticks():
    for _ in range(5):
        await asyncio.sleep(0)


def scheduled(test):
    return lambda: asyncio.run(test())


@scheduled
async def test_a_row_starts_as_soon_as_another_one_ends():
    score = Scorer()
    schedule = Schedule(score, Room(2))
    await schedule.put(rows("A", "B", "C", "D"))
    schedule.end()
    await ticks()
    assert score.begun == [1, 2]
    await score.finish(2)
    assert score.begun == [1, 2, 3]
    assert await schedule.get() == [2]
    await score.finish(1, 3, 4)
    assert await schedule.get() == [1, 3, 4]
    assert await schedule.get() == []


@scheduled
async def test_summaries_of_one_source_are_scored_one_after_the_other():
    score = Scorer()
    schedule = Schedule(score, Room(1))
    await schedule.put(rows("A", "B", "A", "C", "B", "A"))
    for number in (1, 3, 6, 2, 5, 4):
        await ticks()
        await score.finish(number)
    assert score.begun == [1, 3, 6, 2, 5, 4]


@scheduled
async def test_a_source_without_end_does_not_keep_others_waiting_forever():
    score = Scorer()
    schedule = Schedule(score, Room(1))
    await schedule.put(rows("A", "B", *["A"] * 3000))
    await ticks()
    for _ in range(1100):
        await score.finish(score.begun[-1])
        await schedule.get()
    assert 1000 < score.begun.index(2) < 1030


@scheduled
async def test_ordered_results_come_in_the_order_of_the_rows():
    score = Scorer()
    schedule = Schedule(score, Room(3), ordered=True)
    await schedule.put(rows("A", "B", "C"))
    schedule.end()
    await ticks()
    await score.finish(3, 2)
    waiting = asyncio.create_task(schedule.get())
    await ticks()
    assert not waiting.done()
    await score.finish(1)
    assert await waiting == [1, 2, 3]
    assert await schedule.get() == []


@scheduled
async def test_ordered_results_that_wait_for_a_slow_one_are_bounded():
    score = Scorer()
    schedule = Schedule(score, Room(2), ordered=True)
    feeding = asyncio.create_task(schedule.put(rows(*map(str, range(9000)))))
    await ticks()
    while len(score.gates) > 1:
        await score.finish(max(score.gates))
    assert len(score.begun) == 4097
    await score.finish(1)
    assert await schedule.get() == list(range(1, 4098))
    feeding.cancel()


@scheduled
async def test_texts_that_do_not_fit_the_cache_wait():
    score = Scorer()
    schedule = Schedule(score, Room(10, tokens=2500))
    long = "x" * 3000  # 1000 tokens, and 600 of prompts
    await schedule.put(rows(long + "A", long + "B", long + "A"))
    await ticks()
    assert score.begun == [1, 3]
    await score.finish(1, 3)
    assert score.begun == [1, 3, 2]


@scheduled
async def test_one_text_that_fits_no_cache_is_scored_all_the_same():
    score = Scorer()
    schedule = Schedule(score, Room(10, tokens=10))
    await schedule.put(rows("A", "B"))
    await ticks()
    assert score.begun == [1]


@scheduled
async def test_putting_waits_while_many_rows_have_not_been_started():
    schedule = Schedule(Scorer(), Room(1))
    putting = asyncio.create_task(schedule.put(rows(*["A"] * 5000)))
    await ticks()
    assert not putting.done()
    schedule.stop()
    await ticks()
    assert putting.done()


@scheduled
async def test_what_scoring_raises_comes_after_the_results_that_are_there():
    score = Scorer()

    async def fails(row):
        if row.number == 2:
            raise RuntimeError("broken")
        return await score(row)

    schedule = Schedule(fails, Room(1))
    await schedule.put(rows("A", "B", "C"))
    await ticks()
    await score.finish(1)
    assert await schedule.get() == [1]
    with pytest.raises(RuntimeError, match="broken"):
        await schedule.get()
    assert score.begun == [1]


@scheduled
async def test_what_keeps_rows_from_coming_is_raised_after_all_results():
    score = Scorer()
    schedule = Schedule(score, Room(1))
    await schedule.put(rows("A", "B"))
    schedule.end(OSError("unplugged"))
    await ticks()
    await score.finish(1)
    await score.finish(2)
    assert await schedule.get() == [1, 2]
    with pytest.raises(OSError, match="unplugged"):
        await schedule.get()


@scheduled
async def test_an_exit_request_in_a_row_reaches_the_reader():
    async def leaves(row):
        raise SystemExit(3)

    schedule = Schedule(leaves, Room(1))
    await schedule.put(rows("A"))
    with pytest.raises(SystemExit):
        await schedule.get()


@scheduled
async def test_a_reader_who_is_slow_holds_up_what_is_started():
    async def at_once(row):
        return row.number

    schedule = Schedule(at_once, Room(4))
    await schedule.put(rows(*map(str, range(3000))))
    await asyncio.sleep(0.2)
    first = await schedule.get()
    assert 1024 <= len(first) <= 1028
    await asyncio.sleep(0.2)
    assert len(await schedule.get()) > 1000


def test_room_follows_the_capacity():
    assert room_for(Capacity(requests=64), "joint") == Room(80)
    assert room_for(Capacity(requests=64), "itemized") == Room(20)
    assert room_for(Capacity(requests=2, tokens=1000), "itemized") == Room(1, 750)
    assert room_for(Capacity(requests=64, tokens=1000), "joint", 7) == Room(7)
