"""Many examples with one scorer: `score_many`, synchronous and asynchronous."""

import asyncio
import itertools
import threading

import pytest

from offline_summ import (
    Example,
    JudgeError,
    ScriptedEngine,
    SummarizationOptions,
    SummarizationScorer,
    UsageError,
)
from offline_summ.engines.base import Capacity
from offline_summ.engines.scripted import coverage_reply, judgement_reply
from offline_summ.errors import JudgeStoppedError

CLAIMS, QUESTIONS = {"It rained.": True, "It snowed.": False}, {"Did it rain?": True}


def judging(**more):
    return ScriptedEngine.judging(CLAIMS, QUESTIONS, **more)


def numbers(results):
    return [result.input.number for result in results]


@pytest.mark.parametrize(
    "example",
    [
        ("S.", "T."),
        (["S.", "More."], "T."),
        Example(source="S.", summary="T.", id="a"),
        {"source": "S.", "summary": "T.", "id": "a"},
        {"input": "S.", "output": "T."},
    ],
)
def test_an_example_in_each_shape(example):
    with SummarizationScorer(judging()) as scorer:
        (result,) = scorer.score_many([example])
    assert (result.score, result.input.number) == (0.5, 1)
    assert result.id == ("a" if isinstance(example, Example | dict) and "input" not in example else None)


def test_a_malformed_example_costs_itself():
    examples = [("S.", "T."), ("S.",), 7, {"source": "S."}, ("S.", ""), ("U.", "V.")]
    with SummarizationScorer(judging()) as scorer:
        found = list(scorer.score_many(examples, ordered=True))
    kinds = [result.failure and result.failure.kind for result in found]
    unreadable = ["unreadable_input"] * 3
    assert kinds == [None, *unreadable, "empty_summary", None]
    assert found[1].failure.step == "input"
    assert numbers(found) == [1, 2, 3, 4, 5, 6]


def test_examples_are_asked_for_as_there_is_room():
    asked = []

    def endless():
        for number in itertools.count():
            asked.append(number)
            yield f"Source {number}.", "T."

    with SummarizationScorer(judging()) as scorer:
        results = iter(scorer.score_many(endless()))
        taken = list(itertools.islice(results, 5))
        results.close()
    assert len(taken) == 5
    assert len(asked) < 10_000


def test_a_slow_generator_does_not_hold_back_what_it_gave():
    first_is_there = threading.Event()
    waited = []

    def slowly():
        yield "S.", "T."
        waited.append(first_is_there.wait(60))
        yield "U.", "V."

    with SummarizationScorer(judging()) as scorer:
        for _ in scorer.score_many(slowly()):
            first_is_there.set()
    assert waited == [True]


def test_what_the_generator_raises_comes_after_all_results():
    def breaks():
        yield "S.", "T."
        raise OSError("unplugged")

    with SummarizationScorer(judging()) as scorer:
        results = iter(scorer.score_many(breaks()))
        assert next(results).input.number == 1
        with pytest.raises(OSError, match="unplugged"):
            next(results)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_asynchronous_iteration(asynchronous):
    async def come():
        for number in range(30):
            yield f"Source {number}.", "T."

    async def work():
        async with SummarizationScorer(judging()) as scorer:
            examples = come() if asynchronous else [(f"Source {n}.", "T.") for n in range(30)]
            return [result async for result in scorer.score_many(examples)]

    assert sorted(numbers(asyncio.run(work()))) == list(range(1, 31))


def test_what_an_asynchronous_generator_raises_comes_after_all_results():
    async def breaks():
        yield "S.", "T."
        raise OSError("unplugged")

    async def work():
        async with SummarizationScorer(judging()) as scorer:
            results = aiter(scorer.score_many(breaks()))
            first = await anext(results)
            with pytest.raises(OSError, match="unplugged"):
                await anext(results)
            return first

    assert asyncio.run(work()).input.number == 1


def test_what_cannot_be_iterated_over():
    async def come():
        yield "S.", "T."

    with SummarizationScorer(judging()) as scorer:
        for wrong in ("text", 7, {"source": "S.", "summary": "T."}):
            with pytest.raises(UsageError, match="examples is of type"):
                scorer.score_many(wrong)
        with pytest.raises(UsageError, match="Use `async for`"):
            list(scorer.score_many(come()))
        for wrong in (0, -1, 1.5, True):
            with pytest.raises(UsageError, match="concurrency is"):
                scorer.score_many([], concurrency=wrong)
        once = scorer.score_many([("S.", "T.")])
        assert len(list(once)) == 1
        with pytest.raises(UsageError, match="have been iterated over"):
            list(once)
        assert list(scorer.score_many([])) == []


def test_a_scorer_that_is_closed_meanwhile():
    scorer = SummarizationScorer(judging())
    results = iter(scorer.score_many((f"Source {n}.", "T.") for n in itertools.count()))
    next(results)
    scorer.close()
    with pytest.raises(JudgeError, match="closed while it was scoring"):
        list(results)
    assert scorer.score("S.", "T.").score == 0.5
    scorer.close()


@pytest.mark.parametrize("asynchronous", [True, False])
def test_breaking_off_leaves_the_scorer_usable(asynchronous):
    def endless():
        return ((f"Source {n}.", "T.") for n in itertools.count())

    async def work():
        async for _ in scorer.score_many(endless()):
            break

    with SummarizationScorer(judging()) as scorer:
        if asynchronous:
            asyncio.run(work())
        else:
            for _ in scorer.score_many(endless()):
                break
        assert len(list(scorer.score_many([("S.", "T.")] * 3))) == 3


@pytest.mark.parametrize("exit_request", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_request_of_the_generator(exit_request):
    def leaves():
        yield "S.", "T."
        raise exit_request

    with SummarizationScorer(judging()) as scorer:
        results = iter(scorer.score_many(leaves()))
        next(results)
        with pytest.raises(type(exit_request)):
            next(results)


def test_concurrency_follows_the_engine_unless_it_is_given():
    def most_at_once(capacity, **more):
        now, most = 0, 0

        async def script(request):
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.002)
            now -= 1
            if request.step == "coverage":
                return coverage_reply([True])
            return judgement_reply(CLAIMS.items(), QUESTIONS)

        engine = ScriptedEngine(script, capacity=capacity)
        with SummarizationScorer(engine) as scorer:
            assert len(list(scorer.score_many([(f"S{n}.", f"T{n}.") for n in range(60)], **more))) == 60
        return most

    assert most_at_once(Capacity(requests=8)) == 10
    assert most_at_once(Capacity(requests=8), concurrency=3) == 3


def test_what_examples_ask_alike_is_asked_once():
    engine = judging()
    options = SummarizationOptions(protocol="itemized")
    with SummarizationScorer(engine, options) as scorer:
        found = list(scorer.score_many([("One source.", "T.")] * 20))
    assert {result.score for result in found} == {0.5}
    assert sum(result.run.calls for result in found) == len(engine.requests)
    assert len(engine.requests) == len(set(engine.requests))


def test_many_summaries_of_one_source_share_its_questions():
    engine = judging()
    options = SummarizationOptions(protocol="itemized")
    with SummarizationScorer(engine, options) as scorer:
        assert len(list(scorer.score_many([("One source.", f"Summary {n}.") for n in range(16)]))) == 16
    drawn = [r for r in engine.requests if r.step == "questions" and not r.verdict_words]
    assert len(drawn) == 1


def test_questions_of_a_row_although_coverage_is_not_asked_for():
    options = SummarizationOptions(axes="alignment")
    example = {"source": "S.", "summary": "T.", "questions": ["Q?"]}
    with (
        SummarizationScorer(judging(), options) as scorer,
        pytest.raises(UsageError, match="Row 1: questions"),
    ):
        list(scorer.score_many([example]))


class Crashing(ScriptedEngine):
    """Is gone when it sees a text, and stays so until it is started anew."""

    def __init__(self, poison, times=10**9):
        self.starts, self.times, self.gone = 0, times, False

        async def script(request):
            if any(poison in m.content for m in request.messages) and self.times:
                self.times -= 1
                self.gone = True
                raise JudgeStoppedError("Gone.")
            await asyncio.sleep(0.001)
            if self.gone:
                raise JudgeStoppedError("Gone.")
            if request.step == "coverage":
                return coverage_reply([True])
            return judgement_reply(CLAIMS.items(), QUESTIONS)

        super().__init__(script)

    async def start(self):
        self.starts, self.gone = self.starts + 1, False


def test_after_a_crash_the_judge_is_started_again_and_nothing_is_lost():
    engine = Crashing("Source 7", times=1)
    with SummarizationScorer(engine) as scorer:
        found = list(scorer.score_many([(f"Source {n}.", "T.") for n in range(40)]))
    assert [result.status for result in found] == ["scored"] * 40
    assert engine.starts == 2


def test_an_example_that_always_crashes_the_judge_costs_itself():
    engine = Crashing("Source 7.")
    with SummarizationScorer(engine) as scorer:
        found = list(scorer.score_many([(f"Source {n}.", "T.") for n in range(40)], ordered=True))
    failed = [result for result in found if result.failure is not None]
    assert numbers(failed) == [8]
    assert (failed[0].failure.kind, failed[0].failure.step) == ("judge_error", "source_judgement")
    assert engine.starts <= 5


def test_a_judge_that_never_works_ends_the_run():
    engine = Crashing("")
    with SummarizationScorer(engine) as scorer, pytest.raises(JudgeError, match="stopped 4 times"):
        list(scorer.score_many([(f"Source {n}.", "T.") for n in range(40)]))
    assert engine.starts <= 5


def test_a_single_score_survives_a_crash_too():
    engine = Crashing("S.", times=1)
    with SummarizationScorer(engine) as scorer:
        assert scorer.score("S.", "T.").score == 0.5
    assert engine.starts == 2
