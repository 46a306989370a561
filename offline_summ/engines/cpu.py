"""What vLLM has to be told to run a judge well without a GPU.

Imports nothing of vLLM.
"""

import json
import math
import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

_GIB = 2**30
_FEW_CORES = 8
_FEW_CORES_ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
# The default of 128 leaves up to 127 tokens of a shared text to be computed for every call. With 32, replies
# from the cache differed from fresh ones (docs/experiments.md).
_BLOCK = 64


def cpu_arguments(
    folder: Path, context_length: int, dtype: str, environ: MutableMapping[str, str]
) -> dict[str, Any]:
    """Return the engine arguments for a judge on the CPU, and prepare the environment for them.

    Args:
        folder: the judge's model folder.
        context_length: tokens of its longest request and reply together.
        dtype: number type that it is to run in, from `cpu_dtype`.
        environ: the environment.
    """
    return {
        # Compiling for the CPU makes loading three times longer and decoding no faster.
        "enforce_eager": True,
        "block_size": _BLOCK,
        "kv_cache_memory_bytes": kv_cache_bytes(folder, context_length, 4 if dtype == "float32" else 2),
        **_use_all_of_few_cores(environ),
    }


def cpu_dtype(dtype: str, folder: Path, *, computes_in_16_bits: bool) -> str:
    """Return the number type to run a judge in on the CPU.

    Without instructions for 16-bit floats a CPU computes a long prompt several times faster in 32 bits
    (docs/experiments.md), at twice the memory; the 32 bits hold every 16-bit weight exactly.

    Args:
        dtype: the type asked for.
        folder: the judge's model folder; quantized weights keep the type asked for.
        computes_in_16_bits: whether the CPU has instructions for 16-bit floats.
    """
    if computes_in_16_bits or "quantization_config" in _config(folder):
        return dtype
    return "float32"


def computes_in_16_bits() -> bool:
    """Whether PyTorch has fast kernels for bfloat16 on this CPU."""
    import torch

    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):  # a build of PyTorch without oneDNN
        return False


def kv_cache_bytes(folder: Path, context_length: int, bytes_each: int) -> int:
    """Return room for one full context, one GiB at least: keys and values of every layer.

    Without a figure vLLM's CPU build claims a share of the whole memory.
    """
    config = _config(folder)
    config = config.get("text_config", config)
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    key_heads = config.get("num_key_value_heads", heads)
    return room_for_context(2 * bytes_each * config["num_hidden_layers"] * key_heads * size, context_length)


def room_for_context(bytes_per_token: int, context_length: int) -> int:
    """Return the bytes that the KV cache gets on a CPU: one full context and 5 %, one GiB at least."""
    return max(_GIB, math.ceil(1.05 * bytes_per_token * context_length))


def _use_all_of_few_cores(environ: MutableMapping[str, str]) -> dict[str, Any]:
    """By default vLLM keeps one core for its scheduler, which waits for the model by spinning on it.

    One process that computes on all cores is a third faster on two cores (docs/experiments.md), and loads
    12 s sooner.
    """
    cores = len(os.sched_getaffinity(0))
    if cores > _FEW_CORES:
        return {}
    for name, value in {**_FEW_CORES_ENVIRONMENT, "OMP_NUM_THREADS": str(cores)}.items():
        environ.setdefault(name, value)
    return {"distributed_executor_backend": "uni"}


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config
