import json
import math
import resource
from pathlib import Path

import pytest

from offline_summ import calibration as calibration_module
from offline_summ.calibration import (
    UNCALIBRATED,
    Calibration,
    Estimate,
    Figures,
    FittedScale,
    Scale,
    load_calibration,
    logit,
    save_calibration,
    shipped_calibration,
    sigmoid,
)
from offline_summ.errors import UsageError
from offline_summ.judges import load_registry
from offline_summ.prompts import load_prompts

HERE = {
    "weights_sha256": "a" * 64,
    "protocol": "itemized",
    "prompts_sha256": {"en": "e" * 64, "ja": "f" * 64},
}
FIGURES = Figures(
    balanced_accuracy=Estimate(value=0.71, low=0.66, high=0.76),
    auc=Estimate(value=0.8, low=0.75, high=0.85),
    ece=Estimate(value=0.1, low=0.05, high=0.2),
)


def fitted(slope=0.5, intercept=-1.0, threshold=0.6):
    return FittedScale(
        slope=slope,
        intercept=intercept,
        threshold=threshold,
        items=100,
        positives=70,
        documents=20,
        before=FIGURES,
        after=FIGURES,
    )


@pytest.fixture
def calibration():
    return Calibration(
        judge="qwen3-8b",
        **HERE,
        axes={"alignment": {"all": fitted(slope=0.5), "ja": fitted(slope=0.25)}},
    )


def refusal(function, *arguments, **options):
    with pytest.raises(UsageError) as caught:
        function(*arguments, **options)
    return caught.value


def test_logit_and_sigmoid_undo_each_other():
    assert (logit(0.5), sigmoid(0.0)) == (0.0, 0.5)
    assert logit(0.9) == pytest.approx(math.log(9))
    assert sigmoid(math.log(9)) == pytest.approx(0.9)


def test_logit_is_clipped_at_both_ends():
    assert logit(0.0) == logit(1e-6) == pytest.approx(-13.8155, abs=1e-4)
    assert logit(1.0) == logit(1 - 1e-6) == pytest.approx(13.8155, abs=1e-4)


def test_sigmoid_never_overflows():
    assert (sigmoid(-1e6), sigmoid(1e6)) == (0.0, 1.0)


def test_a_scale_moves_the_log_odds_along_a_line():
    decision = Scale(slope=0.5, intercept=-math.log(2), threshold=0.5).decide(0.9)
    assert decision.probability == pytest.approx(0.6)  # odds 9 -> 9 ** 0.5 / 2 = 1.5
    assert decision.yes


def test_a_probability_at_the_threshold_is_a_yes():
    assert UNCALIBRATED.decide(0.5).yes
    assert not UNCALIBRATED.decide(0.499).yes


@pytest.mark.parametrize(
    ("raw", "unsure"), [(0.39, False), (0.41, True), (0.5, True), (0.59, True), (0.61, False)]
)
def test_a_verdict_near_the_threshold_is_unsure(raw, unsure):
    assert UNCALIBRATED.decide(raw, band=0.1).unsure is unsure


def test_unsure_is_seen_from_the_threshold_and_not_from_one_half():
    scale = Scale(slope=1, intercept=0, threshold=0.9)
    assert scale.decide(0.9, band=0.1).unsure
    assert not scale.decide(0.5, band=0.1).unsure


def test_a_band_of_zero_calls_nothing_unsure():
    assert not UNCALIBRATED.decide(0.5, band=0).unsure


@pytest.mark.parametrize("raw", [0.0, 1.0])
def test_the_ends_are_decided_without_error(raw):
    assert Scale(slope=3, intercept=0, threshold=0.5).decide(raw).yes is bool(raw)


@pytest.mark.parametrize("raw", [math.nan, -0.1, 1.1])
def test_what_is_no_probability_is_refused(raw):
    assert str(refusal(UNCALIBRATED.decide, raw)) == (
        f"A judge's probability is {raw!r}. Give a number from 0 to 1."
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"slope": 0},
        {"slope": -1},
        {"slope": math.inf},
        {"intercept": math.nan},
        {"threshold": 0},
        {"threshold": 1},
    ],
)
def test_a_scale_that_cannot_be_meant_is_refused(wrong):
    with pytest.raises(ValueError):
        Scale(**{"slope": 1, "intercept": 0, "threshold": 0.5, **wrong})


def test_a_language_has_its_own_scale_else_that_of_all(calibration):
    assert calibration.scale("alignment", "ja").slope == 0.25
    assert calibration.scale("alignment", "zh").slope == 0.5
    assert calibration.covers("alignment", "ja")
    assert calibration.covers("alignment", "zh")


def test_an_axis_without_scales_is_uncalibrated(calibration):
    assert calibration.scale("coverage", "ja") is UNCALIBRATED
    assert not calibration.covers("coverage", "ja")


def test_the_same_weights_protocol_and_prompts_are_accepted(calibration):
    calibration.check(**HERE, origin="c.json")
    assert calibration.difference(**HERE, origin="c.json") is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"weights_sha256": "b" * 64},
            "Calibration 'c.json' was fitted with weights aaaaaaaaaaaa, but those of the judge are "
            "bbbbbbbbbbbb.",
        ),
        (
            {"weights_sha256": None},
            "Calibration 'c.json' was fitted with weights aaaaaaaaaaaa, but those of the judge are none.",
        ),
        (
            {"protocol": "joint"},
            "Calibration 'c.json' was fitted with protocol 'itemized', but the protocol is 'joint'.",
        ),
        (
            {"prompts_sha256": {"en": "e" * 64, "ja": "0" * 64}},
            "Calibration 'c.json' was fitted with prompts ffffffffffff of language 'ja', but they are now "
            "000000000000.",
        ),
    ],
)
def test_every_change_is_named_and_refused(calibration, change, sentence):
    here = {**HERE, **change, "origin": "c.json"}
    assert calibration.difference(**here) == sentence
    assert str(refusal(calibration.check, **here)) == (
        f"{sentence} Score with what it was fitted with, or run `offline-summ calibrate` again."
    )


@pytest.mark.parametrize("prompts", [{}, {"en": "e" * 64}, {"zh": "0" * 64}])
def test_only_languages_that_both_sides_know_are_compared(calibration, prompts):
    assert calibration.difference(**{**HERE, "prompts_sha256": prompts}, origin="c.json") is None


def test_the_digest_goes_by_content_and_not_by_order(calibration):
    backwards = dict(reversed(calibration.prompts_sha256.items()))
    assert calibration.model_copy(update={"prompts_sha256": backwards}).sha256 == calibration.sha256
    assert calibration.model_copy(update={"judge": "other"}).sha256 != calibration.sha256
    assert len(calibration.sha256) == 64


def test_a_saved_calibration_is_read_back_the_same(calibration, tmp_path):
    path = tmp_path / "c.json"
    save_calibration(calibration, path)
    assert load_calibration(path) == calibration
    assert load_calibration(path).sha256 == calibration.sha256
    assert path.read_text().startswith('{\n  "format": 1,\n  "judge": "qwen3-8b",\n')
    assert [p.name for p in tmp_path.iterdir()] == ["c.json"]


def test_a_file_survives_a_write_that_fails_halfway(calibration, tmp_path):
    path = tmp_path / "c.json"
    path.write_text("before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        error = refusal(save_calibration, calibration, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.message == f"Calibration {str(path)!r} cannot be written: File too large."
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["c.json"]


def test_a_calibration_is_not_written_where_no_folder_is(calibration, tmp_path):
    path = tmp_path / "none" / "c.json"
    message = f"Calibration {str(path)!r} cannot be written: No such file or directory."
    assert refusal(save_calibration, calibration, path).message == message


def test_a_calibration_replaces_no_folder_and_no_device(calibration, tmp_path):
    assert refusal(save_calibration, calibration, tmp_path).message == f"{str(tmp_path)!r} is not a file."


def test_a_missing_calibration_is_refused(tmp_path):
    path = tmp_path / "c.json"
    assert str(refusal(load_calibration, path)) == (
        f"There is no calibration {str(path)!r}. Make it with `offline-summ calibrate`."
    )


def test_a_folder_is_no_calibration(tmp_path):
    message = f"Calibration {str(tmp_path)!r} cannot be read: Is a directory."
    assert refusal(load_calibration, tmp_path).message == message


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\xff", b"[" * 100_000])
def test_what_is_not_json_is_refused(tmp_path, content):
    path = tmp_path / "c.json"
    path.write_bytes(content)
    assert refusal(load_calibration, path).message == f"Calibration {str(path)!r} is not JSON."


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("judge", 3, "at 'judge': Input should be a valid string"),
        ("axes", {"alignment": {"en": {}}}, "at 'axes.alignment.en.slope': Field required"),
        (
            "prompts_sha256",
            {},
            "at 'prompts_sha256': Dictionary should have at least 1 item after validation, not 0",
        ),
        ("protokoll", "joint", "at 'protokoll': Extra inputs are not permitted"),
    ],
)
def test_a_wrong_shape_is_located(calibration, tmp_path, key, value, said):
    path = tmp_path / "c.json"
    path.write_text(json.dumps({**calibration.model_dump(), key: value}))
    assert refusal(load_calibration, path).message == f"Calibration {str(path)!r} is wrong {said}."


@pytest.mark.parametrize("slope", ["1.5", True])
def test_a_number_is_not_taken_from_a_text(calibration, tmp_path, slope):
    written = calibration.model_dump()
    for scale in written["axes"]["alignment"].values():
        scale["slope"] = slope
    path = tmp_path / "c.json"
    path.write_text(json.dumps(written))
    assert "slope': Input should be a valid number" in refusal(load_calibration, path).message


def test_a_list_is_no_calibration(tmp_path):
    path = tmp_path / "c.json"
    path.write_text("[]")
    assert refusal(load_calibration, path).message.startswith(
        f"Calibration {str(path)!r} is wrong at 'file': "
    )


def test_a_format_of_a_later_version_is_refused(calibration, tmp_path):
    path = tmp_path / "c.json"
    path.write_text(json.dumps({**calibration.model_dump(), "format": 2, "new": True}))
    assert str(refusal(load_calibration, path)) == (
        f"Calibration {str(path)!r} has a format that this version does not know; it reads format 1. "
        "Update offline-summ, or run `offline-summ calibrate` again."
    )


def test_every_shipped_calibration_belongs_to_the_prompts_and_the_protocol_that_are_shipped():
    names = sorted(file.stem for file in Path(calibration_module.__file__).parent.glob("calibrations/*.json"))
    assert names
    for name in names:
        prompts = {language: p.digest("itemized") for language, p in load_prompts().languages.items()}
        shipped = shipped_calibration(name)
        assert shipped.judge == name
        assert shipped.prompts_sha256 == prompts, "calibrate again, or the calibration is not used"
        assert shipped.protocol == load_registry().get(name).protocol == "itemized"
