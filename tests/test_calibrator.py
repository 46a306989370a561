import random
from dataclasses import replace

import pytest

from offline_summ import ScriptedEngine
from offline_summ.calibrator import calibrate_judge
from offline_summ.engines.base import Completion
from offline_summ.errors import ExampleError, JudgeError, UsageError
from offline_summ.labelled import LabelledItem

ENGLISH, JAPANESE = "The mill number {n} opened.", "第{n}工場は三月に再開した。"


def items(count, axis="alignment", language=None, source=ENGLISH):
    chance = random.Random(0)
    return [
        LabelledItem(
            document=f"{axis}-{n // 3}",
            row=str(n),
            axis=axis,
            language=language,
            source=source.format(n=n // 3),
            summary=f"Summary {n}.",
            text=f"Item {n} is {'true' if n % 3 else 'false'}.",
            label=(n % 3 > 0) != (chance.random() < 0.1),
        )
        for n in range(count)
    ]


def over_confident(request):
    """Knows a true item from a false one, but says 0.97 and 0.9."""
    yes, *others = request.verdict_words
    p = 0.97 if "is true" in request.messages[-1].content else 0.9
    return Completion(text=yes, probabilities={yes: p, **dict.fromkeys(others, (1 - p) / len(others))})


def test_a_judge_that_calls_everything_supported_becomes_useful():
    engine = ScriptedEngine(over_confident)
    report = calibrate_judge(engine, [*items(150), *items(90, axis="coverage")])
    assert set(report.calibration.axes) == {"alignment", "coverage"}
    scale = report.calibration.axes["alignment"]["en"]
    assert scale.before.balanced_accuracy.value == 0.5
    assert scale.after.balanced_accuracy.value > 0.8
    assert scale.after.ece.value < scale.before.ece.value
    assert (scale.items, scale.documents) == (150, 50)
    assert report.calibration.protocol == "itemized"
    assert set(report.calibration.prompts_sha256) == {"en", "ja", "zh"}
    assert report.curves["alignment", "en"][0].items == 0


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (items(3, axis="coverage"), "3 labelled key facts are too few"),
        ([each for each in items(60, axis="coverage") if each.label], "labelled key facts are positive"),
        ([replace(each, document="one") for each in items(60, axis="coverage")], "come from one document"),
    ],
)
def test_labels_that_nothing_can_be_fitted_to_are_refused_before_the_judge_is_asked(facts, said):
    engine = ScriptedEngine(over_confident)
    with pytest.raises(UsageError, match=said):
        calibrate_judge(engine, [*items(60), *facts])
    assert engine.requests == []


def test_sentences_are_asked_against_the_source_and_key_facts_against_the_summary():
    engine = ScriptedEngine(over_confident)
    calibrate_judge(engine, [*items(30), *items(30, axis="coverage")])
    for request in engine.requests:
        shown = request.messages[-1].content
        assert ("The mill" in shown) == (request.step == "source_judgement")
        assert ("Summary" in shown) == (request.step == "coverage")
    assert len(engine.requests) == 60


def test_an_item_without_a_language_gets_that_of_its_source():
    engine = ScriptedEngine(over_confident)
    report = calibrate_judge(engine, items(60, source=JAPANESE))
    assert set(report.calibration.axes["alignment"]) == {"ja", "all"}


def test_a_language_without_prompts_is_asked_in_that_of_its_source():
    report = calibrate_judge(ScriptedEngine(over_confident), items(60, language="de"))
    assert set(report.calibration.axes["alignment"]) == {"en", "all"}


def test_items_that_cannot_be_judged_are_counted_and_take_no_part():
    def script(request):
        if "number 7" in request.messages[-1].content:
            raise ExampleError("source_too_long", "Too long.")
        return over_confident(request)

    report = calibrate_judge(ScriptedEngine(script), items(60))
    assert report.labels.failures == {"source_too_long": 3}
    assert report.calibration.axes["alignment"]["en"].items == 57


def test_if_no_item_can_be_judged_it_says_so():
    def script(request):
        raise ExampleError("source_too_long", "Too long.")

    with pytest.raises(JudgeError, match="No labelled item could be judged: 12 source_too_long"):
        calibrate_judge(ScriptedEngine(script), items(12))


def test_a_judge_that_fails_is_one_error_and_not_a_group_of_them():
    def script(request):
        raise JudgeError("The judge died.")

    with pytest.raises(JudgeError, match=r"The judge died\."):
        calibrate_judge(ScriptedEngine(script), items(30))


def test_an_axis_that_cannot_be_fitted_is_told_and_the_other_one_is_kept():
    def script(request):
        yes, no = request.verdict_words
        right = "is true" in request.messages[-1].content
        p = 0.9 if right == (request.step == "source_judgement") else 0.2
        return Completion(text=yes, probabilities={yes: p, no: 1 - p})

    report = calibrate_judge(ScriptedEngine(script), [*items(60), *items(60, axis="coverage")])
    assert set(report.calibration.axes) == {"alignment"}
    assert "do not separate the 60 labelled items" in report.unfitted["coverage"]


def test_a_judge_that_knows_nothing_is_refused():
    def script(request):
        yes, *others = request.verdict_words
        return Completion(text=yes, probabilities={yes: 0.8, **dict.fromkeys(others, 0.2 / len(others))})

    with pytest.raises(UsageError, match="do not separate the 60 labelled items"):
        calibrate_judge(ScriptedEngine(script), items(60))
