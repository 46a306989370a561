"""Runs on real vLLM: its capacity, a crash on the way, and the command line."""

import json
import os
import signal
import subprocess
import sys

import pytest
from test_vllm import SOURCE, children_of

from offline_summ import SummarizationOptions, SummarizationScorer
from offline_summ.results_file import read_results

pytestmark = pytest.mark.judge


def test_a_crash_of_vllm_costs_no_row(home):
    """The engine's processes are killed while rows are on their way."""
    before = set(children_of(os.getpid()))
    options = SummarizationOptions(
        protocol="itemized", axes="coverage", reasons="none", questions=["Did it move?"]
    )
    with SummarizationScorer("smollm2-135m", options, home=home) as scorer:
        scorer.start()
        capacity = scorer._session.engine.capacity
        assert capacity.requests >= 1
        assert capacity.tokens >= 8192
        found = []
        for result in scorer.score_many((f"Number {n}. {SOURCE}", f"Summary {n}.") for n in range(60)):
            if not found:
                for child in set(children_of(os.getpid())) - before:
                    os.kill(child, signal.SIGKILL)
            found.append(result)
    assert sorted(result.input.number for result in found) == list(range(1, 61))
    assert {result.status for result in found} == {"scored"}


def test_the_command_goes_on_where_it_was(home, tmp_path):
    source, output = tmp_path / "rows.jsonl", tmp_path / "results.jsonl"
    good = [json.dumps({"id": f"r{n}", "source": SOURCE, "summary": f"Text {n}."}) for n in range(6)]

    def batch(*lines):
        source.write_text("\n".join(lines) + "\n")
        command = [sys.executable, "-m", "offline_summ", "batch", source, "-o", output]
        options = ["--judge", "smollm2-135m", "--home", home, "--protocol", "itemized", "--axes", "coverage"]
        (tmp_path / "questions.txt").write_text("Did the library move?\n")
        more = ["--reasons", "none", "--questions", tmp_path / "questions.txt"]
        return subprocess.run(list(map(str, [*command, *options, *more])), capture_output=True, text=True)

    first = batch(*good[:3], "{")
    assert first.returncode == 5, first
    assert "3 of 4 rows scored" in first.stdout
    assert first.stderr.splitlines()[-1] == "offline-summ: 1 of 4 rows failed."
    second = batch(*good[:3], "{", *good[3:])
    assert second.returncode == 5, second
    assert "6 of 7 rows scored, 4 of them in an earlier run" in second.stdout
    results = {result.input.number: result for result in read_results(output)}
    assert [results[n].id for n in (1, 2, 3, 5, 6, 7)] == [f"r{n}" for n in range(6)]
    assert results[4].failure.kind == "unreadable_input"
    assert len({result.input.settings_sha256 for result in results.values()}) == 1
    assert all(results[n].analyze_step_result.coverage[0].probability > 0 for n in (1, 2, 3, 5, 6, 7))
