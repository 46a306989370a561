"""The built wheel: what is in it, and that it works in an environment without the checkout."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

CALIBRATIONS = sorted((ROOT / "offline_summ" / "calibrations").glob("*.json"))

SCORE = """
import json, sys
from offline_summ import ScriptedEngine, SummarizationScorer
from offline_summ.judges import load_registry
from offline_summ.prompts import load_prompts
import offline_summ
engine = ScriptedEngine.judging({"It rained.": True, "It snowed.": False}, {"Did it rain?": True})
with SummarizationScorer(engine) as scorer:
    result = scorer.score("It rained all day.", "It rained and snowed.")
print(json.dumps({
    "score": result.score,
    "reason": result.reason,
    "file": offline_summ.__file__,
    "languages": sorted(load_prompts().languages),
    "default": load_registry().default,
}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_holds_prompts_judges_licence_and_type_marker(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for language in ("en", "ja", "zh"):
        for name in ("joint_judgement", "joint_coverage", "itemized", "worded_reason", "reason"):
            assert f"offline_summ/_data/prompts/{language}/{name}.jinja" in names
    assert {"offline_summ/_data/models.toml", "offline_summ/py.typed"} <= names
    calibrations = {f"offline_summ/calibrations/{file.name}" for file in CALIBRATIONS}
    assert calibrations
    assert calibrations <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any(name.startswith(("tests/", "examples/", "prompts/")) for name in names)


def test_what_the_wheel_holds_is_what_the_checkout_holds(wheel):
    archive = zipfile.ZipFile(wheel)
    for path in [*(ROOT / "prompts").rglob("*.jinja"), ROOT / "models.toml"]:
        inside = f"offline_summ/_data/{path.relative_to(ROOT)}"
        assert archive.read(inside) == path.read_bytes()


def test_the_wheel_scores_in_a_new_environment_without_the_checkout(wheel, tmp_path):
    # The dependencies come from the environment of the tests; the package itself only from the wheel.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(
        subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    )
    ours = Path(
        subprocess.run(
            [sys.executable, "-c", where], capture_output=True, text=True, check=True
        ).stdout.strip()
    )
    zipfile.ZipFile(wheel).extractall(site)
    # A plain .pth line adds the packages of the other environment, but runs none of its .pth files, and so
    # not the one of the editable checkout.
    (site / "dependencies.pth").write_text(f"{ours}\n")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    said = subprocess.run(
        [python, "-c", SCORE], capture_output=True, text=True, cwd=tmp_path, env=environment, check=True
    )
    result = json.loads(said.stdout)
    assert Path(result["file"]).is_relative_to(site)
    assert (result["score"], result["default"]) == (0.5, "qwen2.5-coder-1.5b")
    assert result["languages"] == ["en", "ja", "zh"]
    assert '"It snowed."' in result["reason"]
