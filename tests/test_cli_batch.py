"""`offline-summ batch` as a user meets it."""

import json

import pytest
from test_cli import broken_judge, refused, run
from typer.testing import CliRunner

from offline_summ import ScriptedEngine, cli, cli_batch, terminal
from offline_summ.results_file import read_results

CLAIMS, QUESTIONS = {"It rained.": True, "It snowed.": False}, {"Did it rain?": True}


def rows(path, count, *more):
    lines = [json.dumps({"id": f"r{n}", "source": f"Source {n}.", "summary": "T."}) for n in range(count)]
    path.write_text("\n".join([*lines, *more]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def scripted(monkeypatch):
    """Run the command in this process with a scripted judge; returns exit code and standard output."""
    monkeypatch.setattr(
        cli_batch, "find_judge", lambda name, models: ScriptedEngine.judging(CLAIMS, QUESTIONS)
    )

    def call(*arguments):
        terminal.terminal.cache_clear()  # standard error of this test, not of the first one
        outcome = CliRunner().invoke(
            cli.app, ["batch", "--airgap", "off", *map(str, arguments)], catch_exceptions=False
        )
        return outcome.exit_code, outcome.output

    return call


@pytest.fixture
def output(tmp_path):
    return tmp_path / "results.jsonl"


class TestRefusals:
    """Each with one line, before a judge loads."""

    @pytest.mark.parametrize(
        ("arguments", "said", "code"),
        [
            ([], "Missing argument 'INPUT'", 2),
            (["a.jsonl"], "Missing option '--output'", 2),
            (["absent.jsonl", "-o", "r.jsonl"], "'absent.jsonl' does not exist.", 3),
            (["absent.what", "-o", "r.jsonl"], "'absent.what' does not exist.", 3),
            (["a.jsonl", "-o", "no/r.jsonl"], "--output is 'no/r.jsonl'", 2),
            (["a.jsonl", "-o", "a.jsonl"], "INPUT and --output are both 'a.jsonl'", 2),
            (["a.jsonl", "-o", "r.jsonl", "--table", "t.xlsx"], "--table is 't.xlsx'", 2),
            (["a.jsonl", "-o", "r.jsonl", "--fail-under", "2"], "--fail-under is 2.0", 2),
            (["a.jsonl", "-o", "r.jsonl", "--each"], "--each is given without --fail-under", 2),
            (["a.jsonl", "-o", "r.jsonl", "--concurrency", "0"], "Invalid value for '--concurrency'", 2),
            (["a.jsonl", "-o", "r.jsonl", "--format", "xlsx"], "'xlsx' is not one of", 2),
            (["-", "-o", "r.jsonl", "--questions", "-"], "INPUT and --questions are both '-'", 2),
            (["a.csv", "-o", "r.jsonl"], "'a.csv' has no column 'source'", 3),
            (["a.txt", "-o", "r.jsonl"], "ending that says nothing", 2),
        ],
    )
    def test_what_cannot_be_meant(self, tmp_path, monkeypatch, arguments, said, code):
        monkeypatch.chdir(tmp_path)
        rows(tmp_path / "a.jsonl", 1)
        (tmp_path / "a.csv").write_text("text,summary\n")
        (tmp_path / "a.txt").write_text("x")
        judge = ["--judge", str(broken_judge(tmp_path))] if arguments else []
        result = run("batch", *arguments, *judge)
        assert said in refused(result, code)
        assert not (tmp_path / "r.jsonl").exists()


class TestRuns:
    def test_what_the_end_says(self, tmp_path, output, scripted):
        code, said = scripted(rows(tmp_path / "a.jsonl", 4), "-o", output)
        assert code == 0
        assert "4 of 4 rows scored" in said
        assert "Decided by: alignment 4" in said
        assert f"Written: {output}" in said.replace("\n", "")
        assert len(list(read_results(output))) == 4

    def test_some_rows_failed(self, tmp_path, output, scripted):
        code, said = scripted(
            rows(tmp_path / "a.jsonl", 4, "{", '{"source": "", "summary": "T."}'), "-o", output
        )
        assert code == 5
        assert "4 of 6 rows scored" in said
        assert "Failed: 1 unreadable_input, 1 empty_source" in said

    def test_a_second_call_goes_on(self, tmp_path, output, scripted):
        source = rows(tmp_path / "a.jsonl", 4)
        scripted(source, "-o", output)
        _, said = scripted(rows(source, 6), "-o", output)
        assert "6 of 6 rows scored, 4 of them in an earlier run" in said

    @pytest.mark.parametrize(
        ("options", "code", "line"),
        [
            (["--fail-under", "0.5"], 0, None),
            (["--fail-under", "0.6"], 1, "The mean score 0.500 is below 0.6."),
            (["--fail-under", "0.6", "--each"], 1, "The scores of 4 of 4 rows are below 0.6."),
        ],
    )
    def test_a_bar_for_the_scores(self, tmp_path, output, scripted, capfd, options, code, line):
        assert scripted(rows(tmp_path / "a.jsonl", 4), "-o", output, *options)[0] == code
        if line:
            assert line in capfd.readouterr().err

    def test_table_and_figures(self, tmp_path, output, scripted):
        table, figures = tmp_path / "t.csv", tmp_path / "s.json"
        source = rows(tmp_path / "a.jsonl", 4)
        code, _ = scripted(source, "-o", output, "--table", table, "--summary-json", figures)
        assert code == 0
        assert len(table.read_text(encoding="utf-8-sig").splitlines()) == 5
        summary = json.loads(figures.read_text())
        assert (summary["scored"], summary["scores"]["score"]["mean"]) == (4, 0.5)

    def test_an_input_without_rows(self, tmp_path, output):
        (tmp_path / "a.jsonl").write_text("")
        result = run("batch", tmp_path / "a.jsonl", "-o", output, "--judge", broken_judge(tmp_path))
        assert "holds no row" in refused(result, 3)
