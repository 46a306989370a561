"""A summarizer run over many inputs, its output scored."""

import asyncio

import pytest

from offline_summ import (
    EvalInput,
    ScriptedEngine,
    SummarizationScorer,
    UsageError,
    arun_evals,
    run_evals,
)
from offline_summ.engines.scripted import coverage_reply, judgement_reply


def scorer(supported=True, judge="scripted"):
    """A judge that finds one claim, supported or not, and one question, answered."""

    def script(request):
        if request.step == "coverage":
            return coverage_reply([True])
        return judgement_reply([("It rained.", supported)], ["Did it rain?"])

    return SummarizationScorer(ScriptedEngine(script, judge=judge))


def test_each_input_is_summarized_and_scored():
    seen = []

    def target(text):
        seen.append(text)
        return f"Summary of {text}"

    with scorer() as judge:
        outcome = run_evals(target, judge, ["One.", "Two."])
    assert sorted(seen) == ["One.", "Two."]
    assert outcome.scores == {"scripted": 1.0}
    assert outcome.scored == {"scripted": 2}
    assert [(item.number, item.input, item.output) for item in outcome.items] == [
        (1, "One.", "Summary of One."),
        (2, "Two.", "Summary of Two."),
    ]
    assert outcome.items[0].results["scripted"].score == 1.0


async def later(text):
    await asyncio.sleep(0)
    return "T."


class Later:
    async def __call__(self, text):
        return "T."


@pytest.mark.parametrize("target", [later, Later(), lambda text: later(text), lambda text: "T."])
def test_a_target_may_be_asynchronous(target):
    with scorer() as judge:
        assert run_evals(target, judge, ["One."]).scores == {"scripted": 1.0}


def test_a_target_that_raises_stop_iteration_costs_its_row():
    def target(text):
        return next(iter([]))

    with scorer() as judge:
        outcome = run_evals(target, judge, ["One."])
    assert str(outcome.items[0].error) == "target raised StopIteration"


def test_a_target_that_raises_costs_its_row():
    def target(text):
        if text == "Two.":
            raise OSError("no answer")
        return "T."

    with scorer() as judge:
        outcome = run_evals(target, judge, ["One.", "Two.", "Three."])
    assert outcome.scored == {"scripted": 2}
    assert outcome.scores == {"scripted": 1.0}
    assert (str(outcome.items[1].error), outcome.items[1].results) == ("no answer", {})


def test_a_failure_is_in_no_mean():
    with scorer() as judge:
        outcome = run_evals(lambda text: "" if text == "Two." else "T.", judge, ["One.", "Two."])
        nothing = run_evals(lambda text: "", judge, ["One."])
    assert (outcome.scores, outcome.scored) == ({"scripted": 1.0}, {"scripted": 1})
    assert outcome.items[1].results["scripted"].failure.kind == "empty_summary"
    assert (nothing.scores, nothing.scored) == ({"scripted": None}, {"scripted": 0})


def test_several_scorers_by_name_or_by_judge():
    with scorer() as good, scorer(supported=False, judge="strict") as strict:
        outcome = run_evals(lambda text: "T.", [good, strict], ["One."])
        assert outcome.scores == {"scripted": 1.0, "strict": 0.0}
        outcome = run_evals(lambda text: "T.", {"a": good, "b": strict}, ["One."])
        assert outcome.scores == {"a": 1.0, "b": 0.0}
        with pytest.raises(UsageError, match="Two scorers have judge 'scripted'"):
            run_evals(lambda text: "T.", [good, good], ["One."])


@pytest.mark.parametrize("asynchronous", [True, False])
def test_each_item_is_reported_when_it_is_done(asynchronous):
    told = []

    async def tell_later(item):
        told.append(item.number)

    with scorer() as judge:
        run_evals(
            lambda text: "T.",
            judge,
            ["One.", "Two."],
            tell_later if asynchronous else lambda item: told.append(item.number),
            concurrency=1,
        )
    assert told == [1, 2]


def test_what_the_report_raises_ends_the_run():
    def refuse(item):
        raise RuntimeError("enough")

    with scorer() as judge, pytest.raises(RuntimeError, match="enough"):
        run_evals(lambda text: "T.", judge, ["One."] * 50, refuse)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_an_exit_request_of_the_target_ends_the_run(asynchronous):
    def leave(text):
        raise SystemExit(3)

    async def leave_later(text):
        raise SystemExit(3)

    with scorer() as judge, pytest.raises(SystemExit):
        run_evals(leave_later if asynchronous else leave, judge, ["One."] * 5)


def test_only_so_many_inputs_at_once():
    now, most = 0, 0

    async def target(text):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.002)
        now -= 1
        return "T."

    with scorer() as judge:
        outcome = run_evals(target, judge, (f"Text {n}." for n in range(30)), concurrency=4)
    assert (most, len(outcome.items)) == (4, 30)


def test_ids_and_questions_of_an_input():
    engine = ScriptedEngine.judging({"It rained.": True}, {"Did it snow?": True})
    with SummarizationScorer(engine) as judge:
        outcome = run_evals(lambda text: "T.", judge, [EvalInput("S.", "a", ["Did it snow?"])])
    result = outcome.items[0].results["scripted"]
    assert (result.id, result.preprocess_step_result.questions) == ("a", ("Did it snow?",))


def test_messages_of_an_agent():
    data = [[{"role": "user", "content": "One."}]]
    with scorer() as judge:
        outcome = run_evals(lambda messages: [{"role": "assistant", "content": "T."}], judge, data)
    assert outcome.scores == {"scripted": 1.0}


def test_inside_an_event_loop():
    async def work():
        with scorer() as judge:
            with pytest.raises(UsageError, match="inside an event loop"):
                run_evals(lambda text: "T.", judge, ["One."])
            return await arun_evals(lambda text: "T.", judge, ["One."])

    assert asyncio.run(work()).scores == {"scripted": 1.0}


def test_what_cannot_be_meant():
    with scorer() as judge:
        for arguments, said in [
            (("text", judge, []), "target is of type str"),
            ((len, [], []), "There is no scorer"),
            ((len, "judge", []), "A scorer is of type str"),
            ((len, {"a": 1}, []), "A scorer is of type int"),
            ((len, judge, [], None, 0), "concurrency is 0"),
        ]:
            with pytest.raises(UsageError, match=said):
                run_evals(*arguments)
        assert run_evals(len, judge, []).items == []
