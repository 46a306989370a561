"""Calibrating a real judge and scoring with what that gave, as a user does it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from offline_summ.calibration import shipped_calibration

pytestmark = pytest.mark.judge

COMMAND = [sys.executable, "-m", "offline_summ"]
TOWNS = ("Linz", "Graz", "Bremen", "Utrecht", "Leeds", "Porto", "Turku", "Basel", "Ghent", "Malmö")


def labelled(town, year):
    """Plain facts of one small source, as many wrong ones, and what a summary tells of them."""
    source = (
        f"The paper mill in {town} opened in {year}. Anna Berg ran it for thirty years. It has forty workers."
    )
    right = [f"The mill in {town} opened in {year}.", "Anna Berg ran the mill for thirty years."]
    wrong = [f"The mill in {town} burned down in {year}.", "Anna Berg sold the mill after two weeks."]
    return {
        "source": source,
        "summary": " ".join(right),
        "sentences": [{"text": t, "supported": True} for t in right]
        + [{"text": t, "supported": False} for t in wrong],
        "key_facts": [
            {"text": right[0], "covered": True},
            {"text": "It has forty workers.", "covered": False},
        ],
    }


def offline_summ(*arguments):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, env={**os.environ, "COLUMNS": "100"}
    )


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrated")
    data, written = folder / "labels.jsonl", folder / "calibration.json"
    rows = [labelled(town, 1900 + n) for n, town in enumerate(TOWNS)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return offline_summ("calibrate", "--data", data, "-o", written), written


def test_a_judge_is_calibrated_to_labels(calibrated):
    done, written = calibrated
    assert (done.returncode, done.stderr) == (0, b""), done
    shown = done.stdout.decode()
    assert "Alignment, language en" in shown
    assert "Coverage, language en" in shown
    assert f"Written: {written}" in shown
    calibration = json.loads(written.read_text(encoding="utf-8"))
    assert calibration["axes"]["alignment"]["en"]["items"] == 40
    shipped = shipped_calibration(calibration["judge"])
    assert calibration["weights_sha256"] == shipped.weights_sha256, "the shipped calibration is not used"
    # These facts are plain: a judge that knows anything tells the right ones from the wrong ones.
    assert calibration["axes"]["alignment"]["en"]["before"]["auc"]["value"] > 0.9
    assert "mill" not in written.read_text(encoding="utf-8")


def test_a_score_uses_it_names_it_and_explains_itself(calibrated, tmp_path):
    _, written = calibrated
    row = labelled("Vaduz", 1950)
    source, summary, questions = (tmp_path / name for name in ("source.txt", "summary.txt", "questions.txt"))
    source.write_text(row["source"], encoding="utf-8")
    summary.write_text(row["summary"], encoding="utf-8")
    questions.write_text("The mill opened in 1950.\nIt has forty workers.\n", encoding="utf-8")
    done = offline_summ(
        *("score", source, summary, "--protocol", "itemized", "--calibration", written),
        *("--questions", questions, "--json"),
    )
    assert (done.returncode, done.stderr) == (0, b""), done
    result = json.loads(done.stdout)
    assert result["run"]["calibration"]["name"] == "calibration.json"
    assert "uncalibrated" not in result["notes"]
    assert result["preprocess_step_result"]["questions"] == [
        "The mill opened in 1950.",
        "It has forty workers.",
    ]
    verdicts = result["preprocess_step_result"]["alignment"] + result["analyze_step_result"]["coverage"]
    low, high = result["score_interval"]
    assert low <= result["score"] <= high
    for verdict in verdicts:
        yes = verdict.get("supported", verdict.get("answered"))
        openings = ("Stated in", "Answered by") if yes else ("Not stated in", "Not answered by")
        assert verdict["reason"].startswith(openings)
        assert 0 < verdict["probability"] < 1
        for evidence in verdict["evidence"] or ():
            text = row[evidence["in"]]
            assert text[evidence["start"] : evidence["end"]] == evidence["quote"]


def test_it_is_refused_for_other_prompts(calibrated, tmp_path):
    _, written = calibrated
    own = tmp_path / "prompts" / "en" / "itemized.jinja"
    own.parent.mkdir(parents=True)
    shipped = Path(__file__).parent.parent / "prompts" / "en" / "itemized.jinja"
    own.write_text(
        shipped.read_text(encoding="utf-8").replace("go by the text", "rely on the text"), encoding="utf-8"
    )
    text = tmp_path / "text.txt"
    text.write_text("The mill opened.", encoding="utf-8")
    done = offline_summ(
        *("score", text, text, "--protocol", "itemized", "--calibration", written),
        *("--prompts", tmp_path / "prompts"),
    )
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().splitlines()
    assert "prompts" in line
    assert "offline-summ calibrate" in line
