"""Results compared with what is installed."""

import hashlib
import json
from importlib import metadata

import pytest
from test_cli import broken_judge, run
from test_schemas import RESULT

from offline_summ.calibration import load_calibration, shipped_calibration
from offline_summ.errors import InputError
from offline_summ.judges import load_registry
from offline_summ.prompts import load_prompts
from offline_summ.schemas import Failure, SummarizationResult, UsedCalibration
from offline_summ.verify import Installed, Lines, read_set_ups
from offline_summ.weights_files import MANIFEST, digest_files, write_manifest

EN = load_prompts().languages["en"].sha256
PACKAGE = metadata.version("offline-summ")


def result(**record):
    versions = {"offline-summ": PACKAGE}
    run = {"prompts_sha256": EN, "network": "namespace", "versions": versions, **record}
    return RESULT.model_copy(update={"run": RESULT.run.model_copy(update=run)})


def line(result):
    return result.model_dump_json().encode() + b"\n"


def read(*lines):
    return read_set_ups(lines, "r.jsonl")


@pytest.fixture
def mine(tmp_path):
    """A models.toml with the judge 'mine', a folder with weights, and their digest."""
    folder = broken_judge(tmp_path)
    file = tmp_path / "mine.toml"
    file.write_text(
        '[judges.mine]\nlicence = "MIT"\ncontext_length = 64\n'
        f'sources = [{{ kind = "folder", path = "{folder}" }}]\n'
    )
    weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    digest = hashlib.sha256(f"{weights}  model.safetensors\n".encode()).hexdigest()
    return file, digest


def states(result, tmp_path, *models, calibration=None):
    installed = Installed(load_registry(*models), tmp_path / "home", load_prompts(), calibration)
    return {check.what: check.state for check in installed.compare(result.run)}


class TestReading:
    def test_results_of_one_set_up_are_one_group_whatever_they_cost(self):
        found = read(line(result(seconds=1.0)), line(result(seconds=2.0, calls=9)), line(result(seed=1)))
        assert [(each.results, each.record.seed) for each in found.set_ups] == [(2, 0), (1, 1)]
        assert found.results == 3

    def test_a_network_that_was_open_or_is_not_known_is_named_by_line(self):
        networks = ["namespace", "open", "guard", None, "open"]
        found = read(*(line(result(network=how)) for how in networks))
        (group,) = found.set_ups
        assert group.networks == {"namespace": 1, "guard": 1, "open": 2, None: 1}
        assert found.unclosed == {"open": Lines(2, [2, 5]), "unknown": Lines(1, [4])}

    def test_five_lines_are_named_at_most(self):
        found = read(*([line(result(network="open"))] * 7))
        assert found.unclosed["open"] == Lines(7, [1, 2, 3, 4, 5])

    def test_the_indented_result_of_score_is_read(self):
        written = (result().model_dump_json(indent=2) + "\n").encode().splitlines(keepends=True)
        assert read(*written).results == 1

    def test_camel_case_is_read(self):
        assert read(result().model_dump_json(by_alias=True).encode()).results == 1

    def test_a_failed_result_has_a_set_up_too(self):
        failed = SummarizationResult(
            status="failed",
            failure=Failure(kind="timeout", message="Too slow.", step="claims"),
            run=result().run,
        )
        assert read(line(failed)).results == 1

    @pytest.mark.parametrize(
        ("key", "value"), [("score", 1.0), ("alignment_score", 0.75), ("scoreInterval", [0, 1])]
    )
    def test_a_written_score_that_the_verdicts_do_not_give_is_found(self, key, value):
        changed = {**result().model_dump(mode="json"), key: value}
        found = read(line(result()), json.dumps(changed).encode() + b"\n", line(result()))
        assert (found.results, found.differing_scores) == (3, Lines(1, [2]))

    @pytest.mark.parametrize(
        "broken", [b"{}\n", b"\n", b"SECRET\n", b'{"id":1}\n', b"\xff\n", b"[" * 5000 + b"\n"]
    )
    def test_a_line_that_is_no_result_is_named_and_not_quoted(self, broken):
        with pytest.raises(InputError, match=r"^'r.jsonl', line 2, is no result") as caught:
            read(line(result()), broken, line(result()))
        assert "SECRET" not in str(caught.value)

    @pytest.mark.parametrize("kept", [7, 60, -2])
    def test_the_half_line_of_a_run_that_was_stopped_is_left_out(self, kept):
        found = read(line(result()), line(result())[:kept])
        assert (found.results, found.cut_line) == (1, 2)

    def test_a_last_line_that_only_lacks_its_end_counts(self):
        found = read(line(result()), line(result())[:-1])
        assert (found.results, found.cut_line) == (2, None)

    @pytest.mark.parametrize("lines", [[], [b'{"id":"a","sco']])
    def test_nothing_whole_is_refused(self, lines):
        with pytest.raises(InputError):
            read(*lines)


class TestComparing:
    def test_what_is_the_same(self, tmp_path, mine):
        file, digest = mine
        found = states(result(judge="mine", weights_sha256=digest), tmp_path, file)
        assert found == {"weights": "same", "prompts en": "same", "offline-summ": "same"}

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            ({"weights_sha256": "0" * 64}, "weights"),
            ({"prompts_sha256": "0" * 64}, "prompts en"),
            ({"versions": {"offline-summ": "0.0.9"}}, "offline-summ"),
            ({"versions": {"no-such-package": "1.0"}}, "no-such-package"),
        ],
    )
    def test_what_differs(self, tmp_path, mine, change, what):
        file, digest = mine
        found = states(result(**{"judge": "mine", "weights_sha256": digest, **change}), tmp_path, file)
        assert [name for name, state in found.items() if state == "different"] == [what]

    def test_the_digest_is_computed_from_the_files(self, tmp_path, mine):
        file, digest = mine
        weights = tmp_path / "model" / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
        found = states(result(judge="mine", weights_sha256=digest), tmp_path, file)
        assert found["weights"] == "different"

    @pytest.mark.parametrize(
        ("record", "what"),
        [
            ({}, "weights"),
            ({"judge": "absent", "weights_sha256": "0" * 64}, "weights"),
            ({"judge": "smollm2-135m", "weights_sha256": "0" * 64}, "weights"),
            ({"language": "fr"}, "prompts fr"),
            ({"calibration": UsedCalibration(name="c.json", sha256="0" * 64)}, "calibration c.json"),
            ({"calibration": UsedCalibration(name="shipped", sha256="0" * 64)}, "calibration shipped"),
        ],
    )
    def test_what_cannot_be_checked(self, tmp_path, record, what):
        assert states(result(**record), tmp_path)[what] == "not checkable"

    def test_the_shipped_calibration_is_compared(self, tmp_path):
        shipped = shipped_calibration("qwen2.5-coder-1.5b").sha256
        for digest, state in ((shipped, "same"), ("0" * 64, "different")):
            used = UsedCalibration(name="shipped", sha256=digest)
            found = states(result(judge="qwen2.5-coder-1.5b", calibration=used), tmp_path)
            assert found["calibration shipped"] == state

    def test_a_calibration_of_ones_own_is_compared_when_it_is_given(self, tmp_path):
        shipped = shipped_calibration("qwen2.5-coder-1.5b")
        (tmp_path / "c.json").write_text(shipped.model_dump_json())
        given = load_calibration(tmp_path / "c.json")
        for digest, state in ((shipped.sha256, "same"), ("0" * 64, "different")):
            used = UsedCalibration(name="c.json", sha256=digest)
            found = states(result(calibration=used), tmp_path, calibration=given)
            assert found["calibration c.json"] == state

    def test_weights_prepared_from_something_else_than_is_pinned_are_found(self, tmp_path):
        pin, other = "a" * 64, "b" * 64
        file = tmp_path / "mine.toml"
        file.write_text(
            '[judges.mine]\nlicence = "MIT"\ncontext_length = 64\n'
            f'sources = [{{ kind = "gguf", path = "absent.gguf", sha256 = "{pin}" }}]\n'
        )
        judge = load_registry(file).get("mine")
        folder = prepared(judge, tmp_path)
        for digest, state in ((pin, "same"), (other, "different")):
            write_manifest(
                folder,
                digest_files(folder, "", lambda _: None),
                {"source": {"kind": "gguf", "sha256": digest}},
            )
            weights = json.loads((folder / MANIFEST).read_text())["weights_sha256"]
            found = states(result(judge="mine", weights_sha256=weights), tmp_path, file)
            assert (found["weights"], found["origin of the weights"]) == ("same", state)


def prepared(judge, tmp_path):
    from offline_summ.weights import prepared_folder

    folder = prepared_folder(judge, judge.sources[0], tmp_path / "home")
    folder.parent.mkdir(parents=True)
    broken_judge(tmp_path).rename(folder)
    return folder


class TestTheCommand:
    def verify(self, tmp_path, *results, models=(), source="r.jsonl", stdin=b""):
        (tmp_path / "r.jsonl").write_bytes(b"".join(map(line, results)))
        own = [part for file in models for part in ("--models", file)]
        name = source if source == "-" else tmp_path / source
        done = run("verify", name, *own, "--home", tmp_path / "home", stdin=stdin)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def test_all_the_same(self, tmp_path, mine):
        file, digest = mine
        one = result(judge="mine", weights_sha256=digest)
        code, out, err = self.verify(tmp_path, one, one, models=[file])
        assert (code, err) == (0, "")
        assert "2 results of judge mine, engine scripted, protocol joint" in out
        assert f"weights       {digest[:12]}    {digest[:12]}  same" in out
        assert "Network: namespace 2" in out
        assert out.endswith("Written scores follow from the verdicts: 2 results\nAll is the same.\n")

    def test_something_differs(self, tmp_path, mine):
        file, digest = mine
        one = result(judge="mine", weights_sha256=digest, prompts_sha256="0" * 64)
        code, out, err = self.verify(tmp_path, one, models=[file])
        assert code == 1
        assert "different" in out
        assert err == "offline-summ: Different: prompts en.\n"

    def test_something_cannot_be_checked(self, tmp_path):
        code, _, err = self.verify(tmp_path, result())
        assert (code, err) == (4, "offline-summ: Cannot be checked here: weights.\n")

    def test_an_open_network_is_named_and_changes_no_exit_code(self, tmp_path, mine):
        file, digest = mine
        one = result(judge="mine", weights_sha256=digest, network="open")
        code, out, _ = self.verify(tmp_path, one, models=[file])
        assert code == 0
        assert "The network was open: 1 result (line 1)" in out

    def test_standard_input_and_no_text_of_a_document(self, tmp_path):
        code, out, err = self.verify(tmp_path, source="-", stdin=line(result()))
        assert code == 4
        assert "1 result of judge scripted" in out
        assert "rain" not in (out + err).lower()

    def test_a_score_that_was_changed(self, tmp_path):
        changed = json.dumps({**result().model_dump(mode="json"), "score": 1.0}).encode()
        code, out, err = self.verify(tmp_path, source="-", stdin=changed)
        assert code == 1
        assert "Written scores that the verdicts do not give: 1 result (line 1)" in out
        assert "written scores" in err

    def test_a_line_that_cannot_be_read_is_named(self, tmp_path):
        code, out, err = self.verify(tmp_path, source="-", stdin=line(result()) + b"x\n")
        assert (code, out) == (3, "")
        assert "'-', line 2, is no result" in err

    def test_a_file_that_is_not_there(self, tmp_path):
        code, _, err = self.verify(tmp_path, source="absent.jsonl")
        assert code == 3
        assert "absent.jsonl' does not exist. Check the path." in err
