"""Equal requests of many examples are asked once."""

import asyncio

import pytest

from offline_summ import ScriptedEngine
from offline_summ.engines.base import Completion, Message, Request
from offline_summ.engines.shared import SharedEngine
from offline_summ.errors import JudgeError
from offline_summ.grammar import decision_grammar

FORM = decision_grammar(("Yes", "No"))


def request(text, **more):
    return Request(step="claims", messages=(Message("user", text),), reply=FORM, **more)


def test_equal_requests_are_asked_once_also_at_the_same_time():
    async def slow(asked):
        await asyncio.sleep(0.01)
        return Completion("Yes", prompt_tokens=5)

    engine = ScriptedEngine(slow)
    shared = SharedEngine(engine)

    async def work():
        first = await asyncio.gather(*(shared.generate(request("A")) for _ in range(3)))
        return [*first, await shared.generate(request("A"))]

    found = asyncio.run(work())
    assert len(engine.requests) == 1
    assert [(each.text, each.reused) for each in found] == [("Yes", False), *[("Yes", True)] * 3]


@pytest.mark.parametrize(
    "other",
    [
        request("B"),
        request("A", begun="x"),
        request("A", thoughts="x"),
        request("A", verdict_words=("Yes", "No")),
        request("A", temperature=1.0),
        request("A", seed=None),
        Request(step="claims", messages=(Message("system", "A"),), reply=FORM),
        Request(step="claims", messages=(Message("user", "A"), Message("user", "")), reply=FORM),
        Request(step="claims", messages=(Message("user", "A"),), reply=decision_grammar(("Ja", "Nein"))),
    ],
)
def test_requests_that_differ_are_each_asked(other):
    engine = ScriptedEngine(lambda asked: "Yes")
    shared = SharedEngine(engine)

    async def work():
        return await shared.generate(request("A")), await shared.generate(other)

    assert not any(each.reused for each in asyncio.run(work()))
    assert len(engine.requests) == 2


def test_one_who_gives_up_does_not_take_the_others_along():
    async def slow(asked):
        await asyncio.sleep(0.02)
        return "Yes"

    shared = SharedEngine(ScriptedEngine(slow))

    async def work():
        first = asyncio.create_task(shared.generate(request("A")))
        second = asyncio.create_task(shared.generate(request("A")))
        await asyncio.sleep(0.005)
        first.cancel()
        return await second

    assert asyncio.run(work()).text == "Yes"


def test_a_request_that_nobody_waits_for_is_cancelled_and_asked_anew():
    begun, ended = [], []

    async def slow(asked):
        begun.append(asked)
        try:
            await asyncio.sleep(0.02)
        finally:
            ended.append(asked)
        return "Yes"

    shared = SharedEngine(ScriptedEngine(slow))

    async def work():
        first = asyncio.create_task(shared.generate(request("A")))
        await asyncio.sleep(0.005)
        first.cancel()
        await asyncio.sleep(0)
        return await shared.generate(request("A"))

    assert asyncio.run(work()).text == "Yes"
    assert (len(begun), len(ended)) == (2, 2)


def test_failures_are_not_remembered():
    said = iter([JudgeError("Broken."), "Yes"])

    def script(asked):
        each = next(said)
        if isinstance(each, Exception):
            raise each
        return each

    shared = SharedEngine(ScriptedEngine(script))

    async def work():
        with pytest.raises(JudgeError):
            await shared.generate(request("A"))
        return await shared.generate(request("A"))

    assert asyncio.run(work()).reused is False


def test_an_exit_request_reaches_all_who_wait():
    async def leaves(asked):
        await asyncio.sleep(0)
        raise SystemExit(3)

    shared = SharedEngine(ScriptedEngine(leaves))

    async def work():
        for _ in range(2):
            with pytest.raises(SystemExit):
                await shared.generate(request("A"))

    asyncio.run(work())


def test_only_so_many_answers_are_remembered(monkeypatch):
    monkeypatch.setattr("offline_summ.engines.shared._REMEMBERED", 2)
    engine = ScriptedEngine(lambda asked: "Yes")
    shared = SharedEngine(engine)

    async def work():
        for text in ("A", "B", "A", "C", "A", "B"):
            await shared.generate(request(text))

    asyncio.run(work())
    assert [each.messages[0].content for each in engine.requests] == ["A", "B", "C", "B"]
