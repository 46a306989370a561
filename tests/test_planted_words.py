"""Words planted in documents are found in results, and in no other file that a run writes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from offline_summ.judges import load_registry
from offline_summ.weights import open_judge

pytestmark = pytest.mark.judge

JUDGE = "smollm2-135m"
PLANTED = ("zanzerquolt", "Brimfaxel", "図譜霞雲")
SOURCE = "The {0} of {1} opened on 3 May. It has 80 seats. Its sign reads {2}."
SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def place(home, tmp_path):
    """A home, a cache and a folder for temporary files that nothing else writes to."""
    (tmp_path / "summ").mkdir()
    (tmp_path / "summ" / "judges").symlink_to(home / "judges", target_is_directory=True)
    for name in ("home", "tmp", "work"):
        (tmp_path / name).mkdir()
    return tmp_path


def start(place, *arguments):
    environ = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
    environ |= {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp")}
    command = [sys.executable, "-m", "offline_summ", *arguments, "--judge", JUDGE, "--home", place / "summ"]
    return subprocess.Popen(
        [*map(str, command)],
        env=environ,
        cwd=place / "work",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def write_rows(place, count):
    source = SOURCE.format(*PLANTED)
    rows = [{"source": f"{source} {n}.", "summary": f"{PLANTED[0]} {n} opened."} for n in range(count)]
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def traces(home):
    """Return what a file must not hold: each word in two encodings, and its tokens as a list of numbers."""
    folder = open_judge(load_registry().get(JUDGE), home).folder
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    found = [word.encode(encoding) for word in PLANTED for encoding in ("utf-8", "utf-16-le")]
    for word in PLANTED:
        found.append(", ".join(map(str, tokenizer.encode(f" {word}").ids)).encode())
        found.append(json.dumps(word).strip('"').encode())
    return found


def shared_files():
    return {file: file.stat().st_mtime_ns for file in SHARED_MEMORY.glob("*") if file.is_file()}


def files_with_text(home, place, before):
    """Return the files below `place` that hold planted text, and those of shared memory that a run left."""
    wanted = traces(home)
    written = [file for file in place.rglob("*") if file.is_file() and "judges" not in file.parts]
    written += [file for file, changed in shared_files().items() if before.get(file) != changed]
    holding = {file for file in written if any(trace in file.read_bytes() for trace in wanted)}
    assert any(file.suffix == ".log" for file in written), "vLLM's log is among the files searched"
    return sorted(file.name for file in holding)


def test_a_run_leaves_text_in_its_results_only(home, place):
    write_rows(place, 3)
    before = shared_files()
    outputs = [
        "-o",
        place / "results.jsonl",
        "--table",
        place / "table.csv",
        "--summary-json",
        place / "s.json",
    ]
    process = start(place, "batch", place / "rows.jsonl", *outputs)
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode in (0, 5), stderr
    assert not any(word.encode() in stdout + stderr for word in PLANTED)
    held = files_with_text(home, place, before)
    assert set(held) <= {"results.jsonl", "rows.jsonl", "table.csv"}
    assert "rows.jsonl" in held, "the search finds what is there"
    for name in ("results.jsonl", "table.csv", "s.json"):
        assert (place / name).stat().st_mode & 0o077 == 0


def test_a_run_that_is_redacted_leaves_none(home, place):
    write_rows(place, 3)
    before = shared_files()
    outputs = ["-o", place / "results.jsonl", "--table", place / "table.csv", "--redact"]
    process = start(place, "batch", place / "rows.jsonl", *outputs)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode in (0, 5), stderr
    assert (place / "results.jsonl").stat().st_size > 0
    assert files_with_text(home, place, before) == ["rows.jsonl"]


def test_a_run_that_is_killed_leaves_text_in_its_results_only(home, place):
    write_rows(place, 400)
    before = shared_files()
    results = place / "results.jsonl"
    process = start(place, "batch", place / "rows.jsonl", "-o", results)
    limit = time.monotonic() + 240
    while not (results.exists() and results.stat().st_size) and time.monotonic() < limit:
        assert process.poll() is None
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert results.stat().st_size > 0
    time.sleep(2)  # what the kill left running ends by itself
    assert set(files_with_text(home, place, before)) <= {"results.jsonl", "rows.jsonl"}
