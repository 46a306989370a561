"""What this machine is: its CPU and memory, its GPUs, and whether torch and vLLM can be imported.

Reads files of the Linux kernel, and asks torch and vLLM in a process of its own. Knows nothing of judges.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROBE = "offline_summ.engines.probe"
_PROBE_TIMEOUT_S = 300.0
# The flags of /proc/cpuinfo that decide how fast a judge is, x86 and ARM.
_INSTRUCTION_SETS = (
    "avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd", "asimdhp", "sve", "bf16",
)  # fmt: skip
_NO_HINT = "Install it again."


@dataclass(frozen=True)
class Gpu:
    """One GPU: its name, and its memory in bytes."""

    name: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class Package:
    """A package that was imported in a process of its own.

    Attributes:
        version: its version; None if it cannot be imported.
        error: why it cannot be imported, one sentence.
        hint: what to do then.
    """

    version: str | None = None
    error: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Machine:
    """What a judge can run on.

    Attributes:
        cores: CPU cores that this process may use.
        instruction_sets: those of the CPU that matter, as the kernel names them.
        total_bytes: memory of the machine, or of the container.
        free_bytes: what of it can be had now.
        gpus: the GPUs that torch sees.
        torch: the package.
        cuda: version of CUDA that torch is built for; None for a build without.
        computes_in_16_bits: whether torch has fast kernels for bfloat16 on this CPU.
        vllm: the package.
    """

    cores: int
    instruction_sets: tuple[str, ...]
    total_bytes: int
    free_bytes: int
    gpus: tuple[Gpu, ...]
    torch: Package
    cuda: str | None
    computes_in_16_bits: bool
    vllm: Package


def this_machine() -> Machine:
    """Look at this machine; takes the seconds that an import of vLLM takes."""
    found = _probed()
    torch = found.get("torch", {})
    total, free = memory_bytes()
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        instruction_sets=instruction_sets(_text("/proc/cpuinfo")),
        total_bytes=total,
        free_bytes=free,
        gpus=tuple(Gpu(**gpu) for gpu in found.get("gpus", ())),
        torch=_package(torch),
        cuda=torch.get("cuda"),
        computes_in_16_bits=bool(torch.get("computes_in_16_bits")),
        vllm=_package(found.get("vllm", {})),
    )


def _package(found: dict[str, Any]) -> Package:
    return Package(found.get("version"), found.get("error", ""), found.get("hint", ""))


def _probed() -> dict[str, Any]:
    command = [sys.executable, "-m", _PROBE]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_TIMEOUT_S
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    except subprocess.TimeoutExpired:
        why = f"the import took longer than {_PROBE_TIMEOUT_S:.0f} s"
    except OSError as error:
        why = f"Python cannot be started: {error.strerror}"
    except ValueError:  # a library that ends the process, such as one built for another CPU
        why = f"the import ended the process with code {done.returncode}"
    return {name: {"error": why, "hint": _NO_HINT} for name in ("torch", "vllm")}


def instruction_sets(cpuinfo: str) -> tuple[str, ...]:
    """Return the instruction sets that matter, out of the text of /proc/cpuinfo."""
    flags: set[str] = set()
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            flags |= set(value.split())
    return tuple(name for name in _INSTRUCTION_SETS if name in flags)


def memory_bytes(root: Path = Path("/")) -> tuple[int, int]:
    """Return the memory of this machine and what of it can be had now, in bytes.

    A container may have less than the machine: the limit of its control group (version 2) counts, and what it
    uses less the files that the kernel would drop.

    Args:
        root: the folder in which proc and sys lie.
    """
    table = dict(line.split(":", 1) for line in _text(root / "proc/meminfo").splitlines() if ":" in line)
    total, free = (int(table.get(name, "0 kB").split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    group = root / "sys/fs/cgroup"
    limit, used = _text(group / "memory.max").strip(), _text(group / "memory.current").strip()
    if limit.isdigit() and used.isdigit() and int(limit) < total:
        statistics = dict(line.split() for line in _text(group / "memory.stat").splitlines())
        droppable = int(statistics.get("inactive_file", 0))
        return int(limit), max(0, min(free, int(limit) - int(used) + droppable))
    return total, free


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
