"""The offline guarantee: closes the network of scoring, and switches off what dependencies would do with it.

Knows nothing of judges, engines and scores.
"""

import functools
import os
import subprocess
import sys
from collections.abc import MutableMapping
from typing import Literal, get_args

from offline_summ import network
from offline_summ.errors import JudgeError, UsageError
from offline_summ.schemas import Network

Airgap = Literal["auto", "required", "off"]

_PROBE_TIMEOUT_S = 30.0

OFFLINE_ENVIRONMENT: dict[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "USE_HUB_KERNELS": "NO",  # Transformers would fetch kernels
    "OTEL_SDK_DISABLED": "true",
}

# vLLM finds its own address by opening a socket towards a public one; an address given here is taken instead.
LOOPBACK_ENVIRONMENT: dict[str, str] = {"VLLM_HOST_IP": "127.0.0.1"}

_process: Network = "open"


def go_offline(environ: MutableMapping[str, str]) -> None:
    """Switch off telemetry, hub look-ups and address discovery for this process and its children.

    Call it before the first import of an engine: the libraries read these variables once.

    Args:
        environ: the environment to change, normally `os.environ`. A host address that is set already is
            kept, because a judge that spans several machines needs it.
    """
    environ.update(OFFLINE_ENVIRONMENT)
    for name, value in LOOPBACK_ENVIRONMENT.items():
        environ.setdefault(name, value)


def close_process(wanted: Airgap) -> str | None:
    """Close the network of this whole process, and of all that it starts, for good.

    Call it first, before there are threads and before any document is read. The kernel enters a process that
    has one thread into a network namespace with a loopback interface only; where it does not, a guard refuses
    connections from Python.

    Args:
        wanted: "auto" falls back to the guard, "required" does not, "off" closes nothing.

    Returns:
        Why there is no namespace, one sentence; None if there is one, or none is wanted.

    Raises:
        JudgeError: a namespace is required and cannot be had.
        UsageError: `wanted` is none of the three.
    """
    global _process
    network.leave_no_core_dump()
    check(wanted)
    if wanted == "off":
        return None
    why = why_no_namespace()
    if why is None:
        try:
            network.close("namespace")
            _process = "namespace"
            return None
        except OSError as error:
            why = error.strerror or type(error).__name__
    if wanted == "required":
        raise _required(why)
    network.close("guard")
    _process = "guard"
    return f"No network namespace ({why}); a guard inside Python refuses connections instead."


def check(wanted: object) -> None:
    """Refuse a wish that is none of `Airgap`.

    Raises:
        UsageError: it is.
    """
    if wanted not in get_args(Airgap):
        raise UsageError(f"airgap is {wanted!r}.", f"Choose one of {', '.join(get_args(Airgap))}.")


def process_network() -> Network:
    """Return how the network of this process was closed by `close_process`."""
    return _process


@functools.cache
def why_no_namespace() -> str | None:
    """Return why this system gives no network namespace to a process, or None if it does.

    Tried in a process of its own.
    """
    if network.is_alone():
        return None
    try:
        done = subprocess.run(
            [sys.executable, "-I", network.__file__],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return type(error).__name__
    if done.returncode == 0:
        return None
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def engine_network(wanted: Airgap, *, one_child: bool) -> Network:
    """Return how the network of an engine's processes is to be closed.

    Args:
        wanted: as in `close_process`.
        one_child: whether one child process, with those that it starts, is the whole engine. Several could
            not reach each other in namespaces of their own.

    Raises:
        JudgeError: a namespace is required and cannot be had.
    """
    if _process == "namespace" or (_process == "guard" and wanted == "auto"):
        return _process
    if wanted == "off":
        return _process
    why = why_no_namespace() if one_child else "the engine is several processes"
    if why is None:
        return "engine_namespace"
    if wanted == "required":
        raise _required(why)
    return "engine_guard"


def close_forked_child(how: Network) -> None:
    """Close the network of an engine's process that was forked just now; it ends if that fails.

    Args:
        how: what `engine_network` returned. Children of a process that is closed itself inherit that.
    """
    if how in ("engine_namespace", "engine_guard"):
        network.leave_no_core_dump()
        try:
            network.close(how.removeprefix("engine_"))
        except OSError:
            os._exit(1)  # an exception here would be ignored


def closed_command_line(line: list[str], how: Network) -> list[str]:
    """Return the command line of an engine's process with the closing of its network as its first act.

    Args:
        line: a Python command line, with a program after `-c`.
        how: as in `close_forked_child`.
    """
    if how in ("engine_namespace", "engine_guard"):
        return network.with_prelude(line, how.removeprefix("engine_"))
    return line


def _required(why: str) -> JudgeError:
    return JudgeError(
        f"A network namespace is required, but this system gives none: {why}.",
        "Allow unprivileged user namespaces, run it as root or without a network, or let the guard do "
        "(airgap 'auto').",
    )
