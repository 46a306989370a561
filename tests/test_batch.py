"""Runs over files: results on disk, resumed, retried, and refused where they belong to something else."""

import csv
import fcntl
import json
import os
import random
import stat
import threading
from pathlib import Path

import pyarrow.parquet
import pytest

from offline_summ import (
    InputError,
    JudgeError,
    ScriptedEngine,
    SummarizationOptions,
    SummarizationResult,
    SummarizationScorer,
    UsageError,
)
from offline_summ.batch import BatchInput, refuse_outputs, run_batch
from offline_summ.results_file import ResultsFile, read_results, results_in_order
from offline_summ.rows import Columns
from offline_summ.table_file import COLUMNS, refuse_table, write_table
from offline_summ.totals import Totals

CLAIMS, QUESTIONS = {"It rained.": True, "It snowed.": False}, {"Did it rain?": True}


def lines(count, *, first=0):
    return [
        json.dumps({"id": f"r{n}", "source": f"Source {n}.", "summary": f"Summary {n}."})
        for n in range(first, first + count)
    ]


def write(path, rows):
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return BatchInput(str(path))


@pytest.fixture
def output(tmp_path):
    return tmp_path / "results.jsonl"


def run(source, output, engine=None, options=None, **more):
    with SummarizationScorer(engine or ScriptedEngine.judging(CLAIMS, QUESTIONS), options) as scorer:
        return run_batch(scorer, source, output, **more)


def numbers(output):
    return [result.input.number for result in read_results(output)]


class Failing(ScriptedEngine):
    """Judges, but fails on summaries that hold a word."""

    def __init__(self, word="5."):
        scripted = ScriptedEngine.judging(CLAIMS, QUESTIONS)

        async def script(request):
            if request.step == "source_judgement" and f"Summary {word}" in request.messages[-1].content:
                raise JudgeError("It broke.")
            return await scripted.generate(request)

        super().__init__(script)


class TestRun:
    def test_every_row_has_one_result_with_its_place_and_its_id(self, tmp_path, output):
        outcome = run(write(tmp_path / "a.jsonl", lines(30)), output)
        results = sorted(read_results(output), key=lambda result: result.input.number)
        assert [(r.input.number, r.id, r.score) for r in results] == [
            (n, f"r{n - 1}", 0.5) for n in range(1, 31)
        ]
        assert (outcome.totals.rows, outcome.totals.scored, outcome.resumed) == (30, 30, 0)
        assert outcome.rows_per_minute > 0

    def test_results_are_readable_by_their_owner_only(self, tmp_path, output):
        run(write(tmp_path / "a.jsonl", lines(1)), output)
        assert stat.S_IMODE(output.stat().st_mode) == 0o600

    def test_ordered_results(self, tmp_path, output):
        mixed = lines(60)
        random.Random(1).shuffle(mixed)
        run(write(tmp_path / "a.jsonl", mixed), output, ordered=True)
        assert numbers(output) == list(range(1, 61))

    def test_a_result_is_on_disk_before_it_is_reported(self, tmp_path, output):
        seen = []

        def written(totals):
            seen.append((totals.rows, len(output.read_bytes().splitlines())))

        run(write(tmp_path / "a.jsonl", lines(20)), output, on_written=written)
        assert seen
        assert all(told == there for told, there in seen)

    def test_every_kind_of_broken_row_costs_itself(self, tmp_path, output):
        """500 rows, 40 of them broken."""
        broken = [
            '{"source": "S.", "summ',
            '{"source": "S."}',
            '{"summary": "T."}',
            '{"source": 3, "summary": "T."}',
            '{"source": "S.", "summary": ["T."]}',
            '{"source": {"a": {"b": "S."}}, "summary": "T."}',
            '{"source": null, "summary": "T."}',
            '{"source": "", "summary": "T."}',
            '{"source": "S.", "summary": " \\n "}',
            '{"source": "S.", "summary": "T.", "id": 1.5}',
            '{"source": "S.", "summary": "T.", "id": {"a": 1}}',
            '{"source": "S.", "summary": "T.", "id": "r1"}',
            '{"source": "S.", "summary": "T.", "questions": "Q?\\nQ?"}',
            '{"source": "S.", "summary": "T.", "questions": [1]}',
            '{"source": "S\\u0000.", "summary": "T."}',
            '{"source": "S\0.", "summary": "T."}',
            '\ufeff{"source": "S.", "summary": "T."}',
            '["S.", "T."]',
            '"text"',
            "null",
            "[" * 3000,
            json.dumps({"source": "x" * 5_000_000, "summary": "T."}),
            "not JSON at all",
            "{'source': 'S.', 'summary': 'T.'}",
            '{"source": "S.", "summary": "T.",}',
            '{"source": "S." "summary": "T."}',
            '{"source": "S.", "summary": "T."} trailing',
            '{"source": "S.", "summary": "T."}{"source": "S.", "summary": "T."}',
            '{"Source": "S.", "Summary": "T."}',
            "source,summary",
            "{}",
            '{"source": "S.", "summary": true}',
            '{"source": ["S.", 1], "summary": "T."}',
            '{"source": [], "summary": "T."}',
            '{"input": "S."}',
            '{"input": [], "output": []}',
            '{"source": "S.", "summary": "T.", "id": "a\\nb"}',
            '{"source": "S.", "summary": "\\u200b\\u200b"}',
        ]
        raw = [line.encode() for line in broken]
        raw += [b'{"source": "S.", "summary": "\xff\xfe"}', b'{"source": "S.", "summary": "T."'[:-3]]
        assert len(raw) == 40
        good = [line.encode() for line in lines(460)]
        rows = [*good[:20], *raw[:20], *good[20:440], *raw[20:], *good[440:]]
        path = tmp_path / "a.jsonl"
        path.write_bytes(b"\r\n".join(rows) + b"\r\n")
        engine = ScriptedEngine.judging(CLAIMS, QUESTIONS, context_length=8192)
        outcome = run(BatchInput(str(path)), output, engine)
        summary = outcome.summary()
        assert (summary["rows"], summary["scored"], summary["failed"]) == (500, 460, 40)
        assert summary["failures"] == {
            "unreadable_input": 34,
            "empty_source": 3,
            "empty_summary": 2,
            "source_too_long": 1,
        }
        assert sorted(numbers(output)) == list(range(1, 501))
        assert all(result.failure.message for result in read_results(output) if result.failure)

    def test_no_message_quotes_a_text(self, tmp_path, output):
        secret = "SECRET"
        rows = [f'{{"source": "{secret}', f'{{"source": "{secret}", "summary": 1}}', f'["{secret}"]']
        run(write(tmp_path / "a.jsonl", rows), output)
        assert secret not in output.read_text()

    def test_questions_of_a_row(self, tmp_path, output):
        row = json.dumps({"source": "S.", "summary": "T.", "questions": ["One?", "Two?"]})
        engine = ScriptedEngine.judging(CLAIMS, {"One?": True, "Two?": False})
        run(write(tmp_path / "a.jsonl", [row]), output, engine, SummarizationOptions(protocol="itemized"))
        (result,) = read_results(output)
        assert result.preprocess_step_result.questions == ("One?", "Two?")

    def test_an_empty_input(self, tmp_path, output):
        assert run(write(tmp_path / "a.jsonl", [""]), output).totals.rows == 0


class TestResume:
    def test_what_is_done_is_not_asked_again(self, tmp_path, output):
        source = write(tmp_path / "a.jsonl", lines(40))
        run(source, output)
        written = output.read_bytes()
        output.write_bytes(b"".join(written.splitlines(keepends=True)[:25]))
        engine = ScriptedEngine.judging(CLAIMS, QUESTIONS)
        outcome = run(source, output, engine)
        assert (outcome.resumed, outcome.totals.rows) == (25, 40)
        assert len(engine.requests) == 2 * 15
        assert sorted(numbers(output)) == list(range(1, 41))

    def test_half_a_line_is_taken_away(self, tmp_path, output):
        source = write(tmp_path / "a.jsonl", lines(10))
        run(source, output, ordered=True)
        whole = output.read_bytes()
        for left in (len(whole) - 1, len(whole) - 700, 3):
            output.write_bytes(whole[:left])
            run(source, output, ordered=True)
            assert numbers(output) == list(range(1, 11))

    def test_a_refusal_leaves_half_a_line_where_it_is(self, tmp_path, output):
        run(write(tmp_path / "a.jsonl", lines(3)), output)
        before = output.read_bytes()[:-50]
        output.write_bytes(before)
        with pytest.raises(UsageError, match="Row 1"):
            run(write(tmp_path / "b.jsonl", lines(3, first=1)), output)
        with pytest.raises(UsageError, match="other settings"):
            run(BatchInput(str(tmp_path / "a.jsonl")), output, options=SummarizationOptions(scale=2.0))
        assert output.read_bytes() == before

    def test_zeros_that_a_power_cut_leaves_are_taken_away(self, tmp_path, output):
        source = write(tmp_path / "a.jsonl", lines(3))
        run(source, output, ordered=True)
        whole = output.read_bytes()
        output.write_bytes(whole.splitlines(keepends=True)[0] + b"\0" * 5000)
        assert run(source, output, ordered=True).resumed == 1
        assert numbers(output) == [1, 2, 3]

    def test_an_output_that_is_a_link_stays_one(self, tmp_path, output):
        source = write(tmp_path / "a.jsonl", lines(3))
        link = tmp_path / "link.jsonl"
        link.symlink_to(output)
        run(source, link, Failing("1."))
        run(source, link, retry_failed=True)
        assert link.is_symlink()
        assert sorted(numbers(output)) == [1, 2, 3]

    def test_rows_may_be_added(self, tmp_path, output):
        run(write(tmp_path / "a.jsonl", lines(5)), output)
        outcome = run(write(tmp_path / "a.jsonl", lines(8)), output)
        assert (outcome.resumed, outcome.totals.rows) == (5, 8)

    def test_another_input_is_refused_before_anything_is_written(self, tmp_path, output):
        run(write(tmp_path / "a.jsonl", lines(5)), output)
        before = output.read_bytes()
        engine = ScriptedEngine.judging(CLAIMS, QUESTIONS)
        with pytest.raises(UsageError, match=r"Row 1 of the input is not the one"):
            run(write(tmp_path / "b.jsonl", lines(5, first=1)), output, engine)
        with pytest.raises(UsageError, match=r"results of 5 rows, but the input has only 3"):
            run(write(tmp_path / "c.jsonl", lines(3)), output, engine)
        assert output.read_bytes() == before
        assert engine.requests == []

    @pytest.mark.parametrize(
        "options",
        [
            {"scale": 2.0},
            {"axes": "alignment"},
            {"max_questions": 3},
            {"protocol": "itemized"},
            {"reason": "none"},
            {"language": "ja"},
            {"questions": ["Q?"]},
        ],
    )
    def test_other_settings_are_refused(self, tmp_path, output, options):
        source = write(tmp_path / "a.jsonl", lines(3))
        run(source, output)
        before = output.read_bytes()
        with pytest.raises(UsageError, match=r"holds results with other settings \(judge 'scripted'"):
            run(source, output, options=SummarizationOptions(**options))
        assert output.read_bytes() == before

    def test_another_judge_is_refused(self, tmp_path, output):
        source = write(tmp_path / "a.jsonl", lines(3))
        run(source, output)
        with pytest.raises(UsageError, match="other settings"):
            run(source, output, ScriptedEngine(lambda request: "", judge="other"))

    def test_a_time_limit_is_no_setting_of_a_score(self, tmp_path, output):
        source = write(tmp_path / "a.jsonl", lines(3))
        run(source, output)
        assert run(source, output, options=SummarizationOptions(timeout=60)).resumed == 3

    def test_no_resume_refuses_what_is_there(self, tmp_path, output):
        source = write(tmp_path / "a.jsonl", lines(3))
        run(source, output, resume=False)
        with pytest.raises(UsageError, match="holds results already"):
            run(source, output, resume=False)

    def test_failures_stay_until_they_are_retried(self, tmp_path, output):
        source = write(tmp_path / "a.jsonl", lines(8))
        first = run(source, output, Failing())
        assert first.summary()["failures"] == {"judge_error": 1}
        again = run(source, output)
        assert (again.resumed, again.totals.failed) == (8, 1)
        mended = run(source, output, retry_failed=True)
        assert (mended.resumed, mended.totals.scored, mended.totals.failed) == (7, 8, 0)
        assert sorted(numbers(output)) == list(range(1, 9))
        assert stat.S_IMODE(output.stat().st_mode) == 0o600

    def test_a_row_that_was_mended_may_be_retried(self, tmp_path, output):
        rows = lines(4)
        run(write(tmp_path / "a.jsonl", [*rows[:2], "{", *rows[2:]]), output)
        source = write(tmp_path / "a.jsonl", [*rows[:2], *lines(1, first=9), *rows[2:]])
        with pytest.raises(UsageError, match="Row 3 of the input is not the one"):
            run(source, output)
        assert run(source, output, retry_failed=True).totals.scored == 5

    def test_retrying_is_refused_for_another_input_too(self, tmp_path, output):
        run(write(tmp_path / "a.jsonl", [*lines(3), "{"]), output)
        before = output.read_bytes()
        with pytest.raises(UsageError, match="Row 1"):
            run(write(tmp_path / "b.jsonl", lines(4, first=1)), output, retry_failed=True)
        assert output.read_bytes() == before

    @pytest.mark.parametrize("content", ["notes\n", '{"a": 1}\n', "\n"])
    def test_a_file_of_something_else_is_left_alone(self, tmp_path, output, content):
        output.write_text(content)
        with pytest.raises(InputError, match="line 1, is no result"):
            run(write(tmp_path / "a.jsonl", lines(3)), output)
        assert output.read_text() == content

    def test_a_note_without_a_line_end_is_not_taken_for_half_a_line(self, tmp_path, output):
        output.write_text("my only copy")
        with pytest.raises(InputError, match="ends with something else"):
            run(write(tmp_path / "a.jsonl", lines(3)), output)
        assert output.read_text() == "my only copy"

    @pytest.mark.parametrize(
        "content",
        ['{"id":"x","source":"my only copy"}', '{"id":null,"so', '{"id":7}', '{"id":"a\\"b","source":"c"}'],
    )
    def test_an_object_of_another_kind_is_not_taken_for_half_a_line(self, tmp_path, output, content):
        output.write_text(content)
        with pytest.raises(InputError, match="ends with something else"):
            run(write(tmp_path / "a.jsonl", lines(3)), output)
        assert output.read_text() == content

    @pytest.mark.parametrize(
        "half",
        ['{"i', '{"id":', '{"id":nu', '{"id":"r', '{"id":"r\\', '{"id":"r","st', '{"id":null,"status":"sco'],
    )
    def test_half_a_result_is_cut_and_scored_again(self, tmp_path, output, half):
        output.write_text(half)
        assert run(write(tmp_path / "a.jsonl", lines(3)), output).totals.scored == 3
        assert [result.input.number for result in read_results(output)] == [1, 2, 3]

    def test_an_empty_file_that_others_may_read_becomes_its_owners_alone(self, tmp_path, output):
        output.touch()
        output.chmod(0o644)
        run(write(tmp_path / "a.jsonl", lines(3)), output)
        assert output.stat().st_mode & 0o777 == 0o600

    def test_a_file_that_was_replaced_before_it_was_locked_is_opened_again(
        self, tmp_path, output, monkeypatch
    ):
        lock, replaced = fcntl.flock, []

        def replacing(file, how):
            if not replaced:
                replaced.append(True)
                (tmp_path / "new").touch()
                os.replace(tmp_path / "new", output)
            lock(file, how)

        monkeypatch.setattr(fcntl, "flock", replacing)
        run(write(tmp_path / "a.jsonl", lines(3)), output)
        assert len(list(read_results(output))) == 3

    def test_results_of_single_scores_are_no_run(self, tmp_path, output):
        with SummarizationScorer(ScriptedEngine.judging(CLAIMS, QUESTIONS)) as scorer:
            output.write_text(scorer.score("S.", "T.").model_dump_json() + "\n")
        with pytest.raises(UsageError, match="something else than a batch"):
            run(write(tmp_path / "a.jsonl", lines(3)), output)

    def test_two_runs_into_one_file(self, tmp_path, output):
        with output.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with pytest.raises(UsageError, match="Another run writes to"):
                run(write(tmp_path / "a.jsonl", lines(3)), output)

    def test_questions_of_a_source_are_those_of_the_run_before(self, tmp_path, output):
        rows = [json.dumps({"source": "One source.", "summary": f"Summary {n}."}) for n in range(4)]
        options = SummarizationOptions(protocol="itemized")
        run(write(tmp_path / "a.jsonl", rows[:2]), output, options=options)
        other = ScriptedEngine.judging(CLAIMS, {"Is it another question?": True})
        run(write(tmp_path / "a.jsonl", rows), output, other, options)
        asked = {result.preprocess_step_result.questions for result in read_results(output)}
        assert asked == {("Did it rain?",)}

    def test_questions_that_were_left_out_are_drawn_again(self, tmp_path, output):
        rows = [json.dumps({"source": "One source.", "summary": f"Summary {n}."}) for n in range(4)]
        options = SummarizationOptions(protocol="itemized", redact=True)
        run(write(tmp_path / "a.jsonl", rows[:2]), output, options=options)
        run(write(tmp_path / "a.jsonl", rows), output, options=options)
        results = list(read_results(output))
        assert [len(result.analyze_step_result.coverage) for result in results] == [1, 1, 1, 1]
        assert "Did it rain?" not in output.read_text()


class TestFullDisk:
    def test_what_cannot_be_written_ends_the_run_and_leaves_whole_lines(self, tmp_path, output, monkeypatch):
        source = write(tmp_path / "a.jsonl", lines(20))
        run(source, output, ordered=True)
        kept = b"".join(output.read_bytes().splitlines(keepends=True)[:5])
        output.write_bytes(kept)
        synced = []

        def full(descriptor):
            synced.append(descriptor)
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(JudgeError, match=r"cannot be written: No space left on device\. All rows up to"):
            run(source, output, ordered=True)
        monkeypatch.undo()
        assert synced
        assert output.read_bytes() == kept
        assert run(source, output, ordered=True).resumed == 5
        assert numbers(output) == list(range(1, 21))


class TestPipes:
    def test_a_pipe_is_read_once(self, tmp_path, output):
        pipe = tmp_path / "rows.jsonl"
        os.mkfifo(pipe)
        source = BatchInput(str(pipe))
        source.check()
        assert source.count() is None
        content = "\n".join(lines(4)) + "\n"
        for _ in range(2):
            writer = threading.Thread(target=pipe.write_text, args=(content,))
            writer.start()
            outcome = run(source, output)
            writer.join()
        assert (outcome.resumed, sorted(numbers(output))) == (4, [1, 2, 3, 4])

    def test_results_go_to_no_pipe(self, tmp_path, output):
        os.mkfifo(output)
        with pytest.raises(UsageError, match="is no regular file"):
            run(write(tmp_path / "a.jsonl", lines(1)), output)


class TestOutputs:
    def test_names_that_cannot_be_meant(self, tmp_path):
        (tmp_path / "in").mkdir()
        a = tmp_path / "a.jsonl"
        for arguments, said in [
            ((str(a), a, None, None), "INPUT and --output are both"),
            (("-", a, None, a), "--output and --summary-json are both"),
            (("-", tmp_path, None, None), "--output is"),
            (("-", Path("/dev/null"), None, None), "--output is"),
            (("-", a, None, Path("/dev/full")), "--summary-json is"),
            (("-", tmp_path / "no" / "a", None, None), "--output is"),
            (("-", a, tmp_path / "t.xlsx", None), "--table is"),
            ((str(tmp_path / "in"), tmp_path / "in" / "r.jsonl", None, None), "inside the input folder"),
        ]:
            with pytest.raises(UsageError, match=said):
                refuse_outputs(*arguments)
        refuse_outputs("-", a, tmp_path / "t.csv", tmp_path / "s.json")


class TestTable:
    def test_csv_and_parquet_hold_the_same_in_the_order_of_the_input(self, tmp_path, output):
        rows = lines(12)
        rows[4] = "{"
        run(write(tmp_path / "a.jsonl", rows), output)
        shuffled = output.read_bytes().splitlines(keepends=True)
        random.Random(2).shuffle(shuffled)
        output.write_bytes(b"".join(shuffled))
        for name in ("t.csv", "t.parquet"):
            write_table(results_in_order(output), tmp_path / name)
        with (tmp_path / "t.csv").open(encoding="utf-8-sig", newline="") as file:
            table = list(csv.DictReader(file))
        parquet = pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pylist()
        assert tuple(table[0]) == COLUMNS
        assert [row["row"] for row in parquet] == list(range(1, 13))
        for written, row in zip(table, parquet, strict=True):
            assert written == {name: "" if value is None else str(value) for name, value in row.items()}
        assert (parquet[0]["score"], parquet[0]["claims"], parquet[0]["supported"]) == (0.5, 2, 1)
        assert (parquet[4]["status"], parquet[4]["score"], parquet[4]["claims"]) == ("failed", None, None)
        assert parquet[4]["failure"] == "unreadable_input"

    def test_a_table_without_rows(self, tmp_path):
        write_table([], tmp_path / "t.parquet")
        assert pyarrow.parquet.read_table(tmp_path / "t.parquet").num_rows == 0

    def test_a_table_that_cannot_be_written_leaves_the_old_one(self, tmp_path, monkeypatch):
        table = tmp_path / "t.csv"
        table.write_text("old")

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(JudgeError, match=r"Table .* cannot be written: No space left"):
            write_table([], table)
        assert table.read_text() == "old"
        assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]

    def test_pyarrow_is_asked_for_before_a_run(self, tmp_path, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
        with pytest.raises(UsageError, match=r"pip install 'offline-summ\[tables\]'"):
            refuse_table(tmp_path / "t.parquet")


class TestTotals:
    def test_figures_of_scores_and_failures(self, tmp_path, output):
        run(write(tmp_path / "a.jsonl", [*lines(3), "{"]), output)
        totals = Totals()
        for result in read_results(output):
            totals.add(result)
        summary = totals.summary()
        assert summary["failures"] == {"unreadable_input": 1}
        assert summary["deciding_axis"] == {"alignment": 3}
        figures = {"mean", "min", "p5", "p25", "p50", "p75", "p95", "max"}
        assert summary["scores"]["alignment_score"] == dict.fromkeys(figures, 0.5)
        assert summary["scores"]["coverage_score"]["mean"] == 1.0
        assert totals.below(0.5) == 0
        assert totals.below(0.51) == 3
        assert (totals.mean_score, totals.rows) == (0.5, 4)

    def test_quantiles(self, tmp_path, output):
        run(write(tmp_path / "a.jsonl", lines(1)), output)
        (one,) = read_results(output)
        claims = one.preprocess_step_result.alignment
        totals = Totals()
        for supported in range(5):
            verdicts = [
                claims[0].model_copy(update={"supported": n < supported, "claim": str(n)}) for n in range(4)
            ]
            step = one.preprocess_step_result.model_copy(update={"alignment": tuple(verdicts)})
            totals.add(one.model_copy(update={"preprocess_step_result": step}))
        figures = totals.summary()["scores"]["alignment_score"]
        assert (figures["p25"], figures["p50"], figures["p75"]) == (0.25, 0.5, 0.75)
        assert figures["p5"] == pytest.approx(0.05)

    def test_nothing(self):
        summary = Totals().summary()
        assert (summary["rows"], summary["scores"], Totals().mean_score) == (0, {}, None)


class TestFormats:
    def test_a_table_with_columns_of_ones_own(self, tmp_path, output):
        path = tmp_path / "a.csv"
        path.write_text("key,text,abstract\n7,S.,T.\n")
        source = BatchInput(str(path), columns=Columns(source="text", summary="abstract", id="key"))
        run(source, output)
        assert [(r.id, r.score) for r in read_results(output)] == [("7", 0.5)]

    def test_a_folder(self, tmp_path, output):
        folder = tmp_path / "pairs"
        folder.mkdir()
        for name in ("a.source.txt", "a.summary.txt"):
            (folder / name).write_text("Text.")
        run(BatchInput(str(folder)), output)
        assert [r.id for r in read_results(output)] == ["a.summary.txt"]

    def test_a_missing_column_is_refused_before_a_judge_loads(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_text("text,summary\nS.,T.\n")
        with pytest.raises(InputError, match="no column 'source'"):
            BatchInput(str(path)).check()


def test_a_results_file_holds_results_as_they_were(tmp_path):
    with SummarizationScorer(ScriptedEngine.judging(CLAIMS, QUESTIONS)) as scorer:
        results = [scorer.score("S.", "T. 日本 \u2028 😀"), scorer.score("", "T.")]
    path = tmp_path / "r.jsonl"
    with ResultsFile(path) as file:
        file.append(results)
    assert list(read_results(path)) == results
    assert SummarizationResult.model_validate_json(path.read_text().split("\n")[0]) == results[0]
