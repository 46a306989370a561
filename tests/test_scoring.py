import pytest

from offline_summ.scoring import round_half_up, score, share


def scored(supported, answered, *, axes="both", scale=1.0):
    return score(supported, answered, axes=axes, scale=scale)


def test_all_supported_and_all_answered_gives_one():
    result = scored([True, True], [True, True, True])
    assert (result.value, result.alignment, result.coverage) == (1.0, 1.0, 1.0)


def test_the_weaker_axis_decides_when_it_is_alignment():
    result = scored([True, False], [True, True])
    assert (result.value, result.deciding_axis) == (0.5, "alignment")


def test_the_weaker_axis_decides_when_it_is_coverage():
    result = scored([True, True], [True, False, False, False])
    assert (result.value, result.deciding_axis) == (0.25, "coverage")


def test_no_claim_supported_gives_zero_decided_by_alignment():
    result = scored([False, False], [True])
    assert (result.value, result.deciding_axis) == (0.0, "alignment")


def test_two_of_three_is_rounded_in_the_score_but_not_on_the_axis():
    result = scored([True, True, False], [True])
    assert (result.value, result.alignment) == (0.67, 2 / 3)


def test_a_scale_of_ten_gives_five_for_one_of_two():
    assert scored([True, False], [True], scale=10).value == 5.0


@pytest.mark.parametrize(("supported", "answered"), [([], [True]), ([True], []), ([], [])])
def test_nothing_to_count_gives_zero_and_no_deciding_axis(supported, answered):
    result = scored(supported, answered)
    assert (result.value, result.deciding_axis) == (0.0, "none")


@pytest.mark.parametrize("verdicts", [[True], [True, False], [False]])
def test_equal_axes_leave_no_deciding_axis(verdicts):
    assert scored(verdicts, verdicts).deciding_axis == "none"


def test_alignment_alone_ignores_the_questions():
    result = scored([True, False], [], axes="alignment")
    assert (result.value, result.alignment, result.coverage) == (0.5, 0.5, None)
    assert result.deciding_axis == "alignment"


def test_coverage_alone_ignores_the_claims():
    result = scored([], [True, False, False, True], axes="coverage")
    assert (result.value, result.alignment, result.coverage) == (0.5, None, 0.5)
    assert result.deciding_axis == "coverage"


def test_an_axis_alone_without_anything_to_count_does_not_decide():
    assert scored([], [True], axes="alignment").deciding_axis == "none"


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(0.125, 0.13), (0.375, 0.38), (1.005, 1.01), (2 / 3, 0.67), (1 / 3, 0.33), (0.0, 0.0), (1.0, 1.0)],
)
def test_halves_are_rounded_up(value, rounded):
    assert round_half_up(value) == rounded


def test_the_share_of_nothing_is_zero():
    assert share([]) == 0.0
