import random
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from offline_summ.calibration import Calibration, sigmoid
from offline_summ.calibration_fit import (
    CurvePoint,
    Judged,
    auc,
    balanced_accuracy,
    expected_calibration_error,
    fit_axis,
    fit_scale,
    learning_curve,
)
from offline_summ.calibration_view import calibration_view
from offline_summ.errors import UsageError


def simulated(documents, *, language="en", slope=3.0, shift=4.0, items=5, seed=1):
    """Items of a judge whose log odds are `slope` times the right ones plus `shift`."""
    source = random.Random(seed)
    judged = []
    for document in range(documents):
        for _ in range(items):
            right = source.gauss(0.5, 1.5)
            label = source.random() < sigmoid(right)
            judged.append(Judged(f"{language}{document}", language, sigmoid(slope * right + shift), label))
    return judged


def judged_as(raws, labels):
    return [
        Judged(f"d{number}", "en", raw, label)
        for number, (raw, label) in enumerate(zip(raws, labels, strict=True))
    ]


def refusal(judged):
    with pytest.raises(UsageError) as caught:
        fit_scale(judged)
    return str(caught.value)


@pytest.fixture(scope="module")
def over_confident():
    return simulated(200)


@pytest.fixture(scope="module")
def scale(over_confident):
    return fit_scale(over_confident)


def test_a_fit_finds_the_line_that_undoes_the_judge(scale):
    assert scale.slope == pytest.approx(1 / 3, abs=0.05)
    assert scale.intercept == pytest.approx(-4 / 3, abs=0.15)


def test_the_threshold_is_near_the_share_of_positives(scale):
    assert (scale.items, scale.documents) == (1000, 200)
    assert scale.threshold == pytest.approx(scale.positives / scale.items, abs=0.03)


def test_a_fit_improves_verdicts_and_probabilities_of_unseen_documents(scale):
    assert scale.after.balanced_accuracy.low > scale.before.balanced_accuracy.high
    assert scale.after.ece.high < scale.before.ece.low
    assert scale.after.ece.value < 0.05


def test_a_fit_keeps_the_order_of_the_probabilities(scale):
    assert scale.after.auc.value == pytest.approx(scale.before.auc.value, abs=0.01)


def test_figures_before_are_those_of_sklearn_on_raw_probabilities(over_confident, scale):
    labels = [item.label for item in over_confident]
    raws = [item.raw for item in over_confident]
    assert scale.before.auc.value == pytest.approx(roc_auc_score(labels, raws))
    assert scale.before.balanced_accuracy.value == pytest.approx(
        balanced_accuracy_score(labels, [raw >= 0.5 for raw in raws])
    )


def test_an_interval_is_about_as_wide_as_theory_says(scale):
    interval = scale.before.auc
    assert interval.low < interval.value < interval.high
    assert 0.03 < interval.high - interval.low < 0.08  # Hanley and McNeil 1982 give 0.055


def test_an_interval_knows_that_items_of_a_document_go_together(over_confident, scale):
    copied = [replace(item, raw=item.raw) for item in over_confident for _ in range(4)]
    interval = fit_scale(copied).before.auc
    assert (interval.low, interval.high) == pytest.approx((scale.before.auc.low, scale.before.auc.high))


def test_fitting_twice_gives_the_same(over_confident, scale):
    assert fit_scale(over_confident) == scale


def test_figures_after_come_from_fits_that_did_not_see_the_document():
    easy = [Judged("easy", "en", raw, raw > 0.5) for raw in [0.1, 0.9] * 5]
    hard = [Judged("hard", "en", raw, raw > 0.7) for raw in [0.6, 0.9] * 5]
    scale = fit_scale(easy + hard)
    assert [scale.decide(raw).yes for raw in (0.1, 0.6, 0.9)] == [False, False, True]
    assert scale.after.balanced_accuracy.value == 0.75  # fitted to the easy document alone, 0.6 is a yes


def test_labels_that_a_threshold_separates_are_fitted_with_a_finite_slope():
    scale = fit_scale(judged_as([0.1] * 10 + [0.9] * 10, [False] * 10 + [True] * 10))
    assert 0 < scale.slope < 10
    assert scale.after.balanced_accuracy.value == 1.0
    assert scale.decide(0.9).yes
    assert not scale.decide(0.1).yes


def test_rare_negatives_do_not_drown():
    raws = [0.999] * 80 + [0.97] * 10 + [0.97] * 8 + [0.999] * 2
    scale = fit_scale(judged_as(raws, [True] * 90 + [False] * 10))
    assert not scale.decide(0.97).yes
    assert scale.decide(0.999).yes


def test_two_documents_are_enough():
    first, second = simulated(2, items=30)[:30], simulated(2, items=30)[30:]
    assert fit_scale(first + second).documents == 2


def test_a_document_that_holds_all_negatives_leaves_some_folds_uncalibrated():
    judged = judged_as([0.6 + n / 100 for n in range(20)], [True] * 20)
    judged += [Judged("negatives", "en", 0.4, False) for _ in range(10)]
    assert fit_scale(judged).documents == 21


def test_too_few_items_are_refused():
    assert refusal(judged_as([0.1, 0.9], [False, True])) == (
        "2 labelled items are too few to fit a scale. Label at least 10, better 50 or "
        "more, or leave them out."
    )


def test_one_document_is_refused():
    one = [replace(item, document="d") for item in simulated(4)]
    assert refusal(one) == (
        "All 20 labelled items come from one document. Label summaries of at least two documents."
    )


@pytest.mark.parametrize(("label", "word"), [(True, "positive"), (False, "negative")])
def test_one_label_is_refused(label, word):
    one = [replace(item, label=label) for item in simulated(4)]
    assert refusal(one) == f"All 20 labelled items are {word}. Add items with the other label."


def test_probabilities_that_fall_with_the_label_are_refused():
    assert refusal(judged_as([0.1] * 10 + [0.9] * 10, [True] * 10 + [False] * 10)) == (
        "The judge's probabilities do not separate the 20 labelled items: their AUC is 0.00. "
        "Check the labels, or choose another judge."
    )


@pytest.mark.parametrize("raws", [[0.7] * 20, [0.2, 0.2, 0.9, 0.9] * 5])
def test_probabilities_that_say_nothing_are_refused(raws):
    assert "their AUC is 0.50." in refusal(judged_as(raws, [True, False] * 10))


def test_auc_is_that_of_sklearn_with_ties_and_weights():
    labels = np.array([True, False, True, True, False, False, True])
    probabilities = np.array([0.9, 0.9, 0.4, 0.7, 0.4, 0.1, 0.7])
    weights = np.array([1.0, 2.0, 0.0, 3.0, 1.0, 1.0, 2.0])
    assert auc(labels, probabilities) == pytest.approx(roc_auc_score(labels, probabilities))
    assert auc(labels, probabilities, weights) == pytest.approx(
        roc_auc_score(labels, probabilities, sample_weight=weights)
    )


def test_balanced_accuracy_is_that_of_sklearn_with_weights():
    labels = np.array([True, False, True, True, False])
    verdicts = np.array([True, True, False, True, False])
    weights = np.array([1.0, 2.0, 3.0, 0.0, 5.0])
    assert balanced_accuracy(labels, verdicts) == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert balanced_accuracy(labels, verdicts, weights) == pytest.approx(
        balanced_accuracy_score(labels, verdicts, sample_weight=weights)
    )


def test_ece_is_that_of_a_sum_by_hand():
    labels = np.array([True, False, True, True])
    probabilities = np.array([0.72, 0.78, 0.15, 1.0])
    # bin 0.7: mean 0.75, share 0.5, two items; bin 0.1: 0.15 and 1; last bin: 1 and 1
    assert expected_calibration_error(labels, probabilities) == pytest.approx((2 * 0.25 + 0.85) / 4)
    weights = np.array([1.0, 1.0, 0.0, 2.0])
    assert expected_calibration_error(labels, probabilities, weights) == pytest.approx(0.5 / 4)


def test_fifty_labels_already_help_an_over_confident_judge(over_confident):
    points = {point.items: point for point in learning_curve(over_confident)}
    assert list(points) == [0, 25, 50, 100, 200, 400]
    assert points[50].balanced_accuracy > points[0].balanced_accuracy + 0.05
    assert points[50].ece < points[0].ece / 2
    assert points[400].ece < points[50].ece


def test_sizes_above_half_of_the_items_are_left_out():
    curve = learning_curve(simulated(20), repeats=2)
    assert [point.items for point in curve] == [0, 25, 50]


def test_a_size_draws_whole_documents_and_evaluates_on_the_others():
    half = [Judged(f"d{n}", "en", raw, label) for n in range(2) for raw, label in ((0.9, True), (0.2, False))]
    curve = learning_curve(half, sizes=(1, 2), repeats=3)
    assert [(point.items, point.balanced_accuracy) for point in curve] == [(0, 1.0), (1, 1.0), (2, 1.0)]
    assert curve[0].ece == pytest.approx(0.15)
    assert curve[1].ece < 0.05
    assert curve[1] == CurvePoint(1, curve[2].balanced_accuracy, curve[2].ece)


def test_draws_that_cannot_be_fitted_count_as_uncalibrated():
    same = judged_as([0.7] * 20, [True, False] * 10)
    before, after = learning_curve(same, sizes=(10,), repeats=3)
    assert (before.balanced_accuracy, after.balanced_accuracy) == (0.5, 0.5)
    assert before.ece == pytest.approx(0.2)


def test_one_language_has_the_scale_of_all():
    scales = fit_axis(simulated(20, language="ja"))
    assert list(scales) == ["all", "ja"]
    assert scales["all"] == scales["ja"]


def test_each_language_with_enough_items_has_its_own_scale():
    scales = fit_axis(
        simulated(40, language="en") + simulated(40, language="ja", shift=-2) + simulated(9, language="zh")
    )
    assert sorted(scales) == ["all", "en", "ja"]
    assert (scales["all"].items, scales["en"].items, scales["ja"].items) == (445, 200, 200)
    assert scales["en"].intercept < scales["ja"].intercept


def test_a_language_with_few_of_one_label_is_left_to_all():
    few = [replace(item, label=number >= 9) for number, item in enumerate(simulated(20, language="ja"))]
    assert sorted(fit_axis(simulated(40) + few)) == ["all", "en"]


def test_a_language_that_cannot_be_fitted_is_left_to_all():
    flat = [replace(item, raw=0.7) for item in simulated(20, language="ja")]
    assert sorted(fit_axis(simulated(40) + flat)) == ["all", "en"]


def shown(calibration, curves):
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(calibration_view(calibration, curves))
    console.file.close()
    return [line.rstrip() for line in console.export_text().splitlines()]


def rounded(scale):
    estimates = {"value": 0.712, "low": 0.658, "high": 0.761}
    figures = {name: estimates for name in ("balanced_accuracy", "auc", "ece")}
    made = scale.model_dump() | {"slope": 1.0, "intercept": 0.0, "threshold": 0.63, "positives": 620}
    return type(scale).model_validate(made | {"before": figures, "after": figures})


def calibration_of(scales):
    return Calibration(
        judge="qwen3-8b",
        weights_sha256=None,
        protocol="itemized",
        prompts_sha256={"en": "0" * 64},
        axes={"alignment": scales},
    )


def test_a_calibration_is_shown_in_eighty_columns(scale):
    curves = {("alignment", "all"): [CurvePoint(0, 0.6, 0.3), CurvePoint(25, 0.65, 0.101)]}
    assert shown(calibration_of({"all": rounded(scale)}), curves) == [
        "judge qwen3-8b, protocol itemized",
        "",
        "Alignment, all languages",
        "1000 items of 200 documents, 62 % supported",
        "threshold 0.63, which is a raw probability of 0.63",
        "        balanced accuracy  AUC                ECE",
        "before  0.71 [0.66, 0.76]  0.71 [0.66, 0.76]  0.71 [0.66, 0.76]",
        "after   0.71 [0.66, 0.76]  0.71 [0.66, 0.76]  0.71 [0.66, 0.76]",
        "labelled items  balanced accuracy  ECE",
        "none            0.60               0.30",
        "25              0.65               0.10",
        "",
        "Every figure comes from documents that the fit did not see; brackets are 95 %",
        "intervals. ECE is the expected calibration error: lower is better.",
    ]


def test_a_scale_that_is_that_of_all_languages_is_shown_once(scale):
    lines = shown(calibration_of({"all": scale, "ja": scale}), {})
    assert [line for line in lines if line.startswith("Alignment")] == ["Alignment, language ja"]


def test_names_in_a_calibration_cannot_steer_a_terminal(scale):
    lines = shown(calibration_of({"[red]\x1b[2J": scale}), {})
    assert "Alignment, language [red]\ufffd[2J" in lines
