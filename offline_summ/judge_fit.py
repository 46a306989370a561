"""Whether a judge fits into a memory: its weights, and the KV cache of one full context.

The KV cache of one token is 2 (keys and values) x layers x key heads x size of a head x bytes of a number:
the term of Pope et al. 2022, "Efficiently scaling transformer inference", with the key heads of grouped-query
attention, as vLLM allocates it for full attention. Pure arithmetic; knows nothing of machines and engines.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from offline_summ.engines.cpu import room_for_context
from offline_summ.judges import Judge
from offline_summ.model_memory import KvShape, Weights, bytes_of

GIB = 2**30
GPU_SHARE = 0.92
"""Share of a GPU's memory that vLLM 0.32 and 0.33 take unless told otherwise (`CacheConfig`)."""
GPU_WORK_BYTES = 2 * GIB
"""Estimate of what vLLM takes on each GPU beside weights and KV cache: activations and CUDA graphs."""
CPU_WORK_BYTES = 3 * GIB
"""Estimate of what Python, torch and vLLM take on a CPU beside weights and KV cache."""

# A context of fewer tokens is of little use.
_SHORTEST = 2048


@dataclass(frozen=True)
class Room:
    """The memory that a judge may use, on the CPU or on each of the GPUs that share it.

    Attributes:
        place: "cpu" or "gpu".
        budget: bytes that it may take.
        budget_how: how that was found, a phrase.
        free: bytes that are free now; on a GPU the budget has to be.
        work: bytes beside weights and KV cache.
        devices: number of GPUs, 1 for the CPU.
    """

    place: Literal["cpu", "gpu"]
    budget: int
    budget_how: str
    free: int
    work: int
    devices: int = 1


@dataclass(frozen=True)
class Split:
    """Over how many GPUs a judge is spread: its heads, its layers, and whole copies of it."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1

    @property
    def gpus(self) -> int:
        """GPUs that it takes in all."""
        return self.tensor * self.pipeline * self.data


def split_of(engine: Mapping[str, Any]) -> Split:
    """Return the split that a judge's engine arguments ask for."""
    names = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    return Split(*(int(engine.get(name, 1)) for name in names))


def gpu_room(total: int, free: int, engine: Mapping[str, Any], devices: int) -> Room:
    """Return what a judge may use of each GPU: a share of its memory, all of which must be free.

    Args:
        total: bytes of the smallest of the GPUs.
        free: bytes of it that are free.
        engine: the judge's engine arguments.
        devices: number of GPUs.
    """
    share = float(engine.get("gpu_memory_utilization", GPU_SHARE))
    how = f"gpu_memory_utilization {share:g} x {gib(total)}"
    return Room("gpu", int(total * share), how, free, GPU_WORK_BYTES, devices)


def cpu_room(free: int) -> Room:
    """Return what a judge may use of a CPU's memory: all that is free."""
    return Room("cpu", free, "free memory", free, CPU_WORK_BYTES)


@dataclass(frozen=True)
class Fit:
    """Whether a judge fits, and how that was computed.

    Attributes:
        fits: None if it cannot be told.
        arithmetic: label and text, one a line.
        verdict: one sentence.
        advice: what to do next; empty if it fits.
        contexts: full contexts that the KV cache holds at once; None if unknown.
    """

    fits: bool | None
    arithmetic: tuple[tuple[str, str], ...]
    verdict: str
    advice: str = ""
    contexts: float | None = None


def judge_fit(judge: Judge, weights: Weights, shape: KvShape | str, room: Room, dtype: str) -> Fit:
    """Compute whether weights and the KV cache of one full context fit into a memory.

    Args:
        judge: the judge, with its context length and engine arguments.
        weights: what its weights take.
        shape: from `kv_shape`.
        room: the memory.
        dtype: number type that it is computed in.
    """
    split = split_of(judge.engine) if room.place == "gpu" else Split()
    lines = [("weights", _weights_line(weights, split))]
    if weights.bytes is None:
        advice = f"Run `offline-summ judges fetch {judge.name}`."
        return Fit(None, tuple(lines), "cannot be told whether it fits", advice)
    cache_dtype = str(judge.engine.get("kv_cache_dtype", "auto"))
    number = bytes_of(dtype if cache_dtype == "auto" else cache_dtype)
    per_token = None
    if isinstance(shape, str):
        lines.append(("KV cache", f"not computed: {shape}"))
    else:
        per_token = shape.bytes_per_token(
            number, tensor_parallel=split.tensor, pipeline_parallel=split.pipeline
        )
        lines += _cache_lines(judge, shape, split, number, per_token)
    need = _need(judge, weights.bytes, per_token, split, on_cpu=room.place == "cpu")
    if need.cache is not None and need.cache_how:
        lines.append(("its room", f"{gib(need.cache)}: {need.cache_how}"))
    lines.append(("beside", f"{gib(room.work)} (an estimate): {_WORK[room.place]}"))
    lines.append(("may use", f"{gib(room.budget)}: {room.budget_how}{_each(split)}"))
    if room.place == "gpu":
        lines.append(("free", f"{gib(room.free)}{_each(split)}"))
    return _verdict(judge, room, need, tuple(lines), estimated=weights.certainty == "estimated")


_WORK = {"cpu": "Python, torch and vLLM", "gpu": "activations and CUDA graphs"}


def _weights_line(weights: Weights, split: Split) -> str:
    if weights.bytes is None:
        return f"unknown: {weights.how}"
    about = "about " if weights.certainty == "estimated" else ""
    said = f"{about}{weights.bytes:,} bytes = {gib(weights.bytes)} ({weights.how})"
    shared = split.tensor * split.pipeline
    return said if shared == 1 else f"{said} / {shared} GPUs = {gib(math.ceil(weights.bytes / shared))} each"


def _cache_lines(
    judge: Judge, shape: KvShape, split: Split, number: int, per_token: int
) -> list[tuple[str, str]]:
    layers = math.ceil(shape.layers / split.pipeline)
    heads = math.ceil(shape.key_heads / split.tensor)
    product = f"2 x {layers} layers x {heads} key heads x {shape.head_size} x {number} bytes"
    needed = judge.context_length * per_token
    return [
        ("a token", f"{product} = {per_token:,} bytes of KV cache{_each(split)}"),
        *(("", note) for note in shape.notes),
        ("a context", f"{judge.context_length:,} tokens x {per_token:,} bytes = {gib(needed)}"),
    ]


def _each(split: Split) -> str:
    return " on each GPU" if split.gpus > 1 else ""


@dataclass(frozen=True)
class _Need:
    """What a judge needs on each device: weights, KV cache (None if unknown) and one token of it."""

    split: Split
    weights: int
    per_token: int | None
    cache: int | None
    cache_how: str = ""


def _need(judge: Judge, weights: int, per_token: int | None, split: Split, *, on_cpu: bool) -> _Need:
    each = math.ceil(weights / (split.tensor * split.pipeline))
    given = judge.engine.get("kv_cache_memory_bytes")
    if type(given) is int:
        return _Need(split, each, per_token, given, "kv_cache_memory_bytes of the judge")
    if per_token is None:
        return _Need(split, each, None, None)
    if on_cpu:
        cache = room_for_context(per_token, judge.context_length)
        return _Need(split, each, per_token, cache, "one context and 5 %, 1 GiB at least")
    return _Need(split, each, per_token, per_token * judge.context_length)


def _verdict(
    judge: Judge, room: Room, need: _Need, lines: tuple[tuple[str, str], ...], *, estimated: bool
) -> Fit:
    def no(why: str, advice: str) -> Fit:
        return Fit(False, lines, f"does not fit{', by an estimate' if estimated else ''} ({why})", advice)

    if room.devices < need.split.gpus:
        why = f"it is spread over {need.split.gpus} GPUs, and there are {room.devices}"
        return no(why, "Lower tensor_parallel_size in an entry of yours, or choose a smaller judge.")
    if room.free < room.budget:
        why = f"{gib(room.free)} of a GPU are free, less than the {gib(room.budget)} that vLLM takes"
        return no(why, "End what else uses the GPU, or lower gpu_memory_utilization in an entry of yours.")
    left = room.budget - room.work - need.weights
    if left < 0:
        return no(f"{gib(-left)} are lacking for the weights alone", _smaller(room))
    if need.cache is None:
        advice = "Load it once: vLLM says how much its KV cache takes."
        return Fit(None, lines, "its weights fit, and whether its KV cache does cannot be told", advice)
    if need.cache > left:
        return no(f"{gib(need.cache - left)} are lacking for one context", _shorter(room, need, left))
    if need.per_token is None:
        return Fit(True, lines, "fits")
    held = left if room.place == "gpu" and not need.cache_how else need.cache
    contexts = held / (need.per_token * judge.context_length)
    if contexts < 1:
        return no("its KV cache holds less than one context", "Raise kv_cache_memory_bytes of the judge.")
    spare = gib(left - need.cache)
    beside = f", {spare} stay free" if room.place == "cpu" else ""
    return Fit(True, lines, f"fits, {contexts:.1f} contexts at once{beside}", contexts=contexts)


def _smaller(room: Room) -> str:
    more = "; or spread it over more GPUs (tensor_parallel_size)" if room.place == "gpu" else ""
    return f"Choose a smaller or a quantized judge{more}."


def _shorter(room: Room, need: _Need, left: int) -> str:
    """Return the longest context that fits, if it is worth having, and else another way out."""
    if need.per_token is None or need.cache_how.startswith("kv_cache"):
        return "Lower kv_cache_memory_bytes of the judge."
    tokens = int(left / need.per_token / (1.05 if room.place == "cpu" else 1)) // 256 * 256
    if tokens < _SHORTEST or (room.place == "cpu" and left < room_for_context(need.per_token, tokens)):
        return _smaller(room)
    return f"Set context_length = {tokens} in an entry of yours. Or: {_smaller(room)}"


def gib(count: int) -> str:
    """Return bytes as people read them."""
    return f"{count / GIB:.2f} GiB"
