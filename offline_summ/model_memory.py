"""What a judge takes of a memory: the bytes of its weights, and of one token in its KV cache.

Reads the content of a config.json and what models.toml says; opens no file. Knows nothing of machines and
engines.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from offline_summ.judge_sources import GgufSource, WheelsSource
from offline_summ.judges import Judge

# What a GGUF file in 4 bits becomes in bfloat16, at most (weights.py).
_FROM_GGUF = 3.5
_PARAMETERS = re.compile(r"(\d+(?:\.\d+)?)([BM])\b")
_NAMES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "key_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
}
# What these name is not keys and values of every token in every layer.
_OTHER_MEMORY: Mapping[str, str] = {
    "kv_lora_rank": "latent attention",
    "ssm_cfg": "state-space layers",
    "mamba_d_state": "state-space layers",
    "ssm_state_size": "state-space layers",
    "state_size": "state-space layers",
    "linear_num_key_heads": "linear attention",
    "is_encoder_decoder": "an encoder beside the decoder",
}
_WINDOW_KEYS = ("sliding_window", "attention_chunk_size")
_COUNTED_LAYERS = frozenset({"full_attention", "sliding_attention", "chunked_attention", "attention"})

Certainty = Literal["known", "estimated", "unknown"]


@dataclass(frozen=True)
class KvShape:
    """What the KV cache of a judge is made of.

    Attributes:
        layers: number of layers.
        key_heads: heads of keys and values in each.
        head_size: numbers in each head.
        notes: what a reader of the arithmetic has to know, one sentence each.
    """

    layers: int
    key_heads: int
    head_size: int
    notes: tuple[str, ...] = ()

    def bytes_per_token(
        self, bytes_each: int, *, tensor_parallel: int = 1, pipeline_parallel: int = 1
    ) -> int:
        """Return the bytes that one token takes, on one of the GPUs that share the judge.

        Args:
            bytes_each: bytes of a number.
            tensor_parallel: GPUs that share the heads; a head that is fewer than these is on several.
            pipeline_parallel: GPUs that share the layers.
        """
        layers = math.ceil(self.layers / pipeline_parallel)
        return 2 * layers * math.ceil(self.key_heads / tensor_parallel) * self.head_size * bytes_each


def kv_shape(config: Mapping[str, Any]) -> KvShape | str:
    """Return what the KV cache of a judge is made of, or why that cannot be told, as a phrase.

    Args:
        config: its config.json; of a judge that also sees images, the part of the text counts.
    """
    text = config.get("text_config")
    config = text if isinstance(text, dict) else config
    for key, what in _OTHER_MEMORY.items():
        if config.get(key):
            return f"its config.json names {what} ({key}), for which this formula does not hold"
    kinds = config.get("layer_types")
    others = set(map(str, kinds)) - _COUNTED_LAYERS if isinstance(kinds, list) else set()
    if others:
        return f"its config.json names layers of kind {min(others)!r}, for which this formula does not hold"
    layers, heads, key_heads, hidden = (_number(config, *names) for names in _NAMES.values())
    size = _number(config, "head_dim")
    if layers is None or heads is None or (size is None and hidden is None):
        return "its config.json does not name layers, heads and their size in a way that is known here"
    notes = []
    if key_heads is None and config.get("multi_query") is True:
        key_heads = 1
    if key_heads is None:
        key_heads = heads
        notes.append("config.json names no num_key_value_heads: as many as attention heads.")
    if size is None:
        size = (hidden or 0) // heads
    if _has_window(config):
        notes.append("Some layers keep a window of the tokens only; counted in full, so this is the most.")
    return KvShape(layers, key_heads, size, tuple(notes))


def _has_window(config: Mapping[str, Any]) -> bool:
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return any(kind in ("sliding_attention", "chunked_attention") for kind in kinds)
    if config.get("use_sliding_window") is False:
        return False
    return any(_number(config, key) for key in _WINDOW_KEYS)


def _number(config: Mapping[str, Any], *names: str) -> int | None:
    return next((config[name] for name in names if type(config.get(name)) is int and config[name] > 0), None)


def bytes_of(dtype: str) -> int:
    """Return the bytes of a number; a type that is not known, such as "auto", has the usual two."""
    if "float32" in dtype:
        return 4
    return 1 if dtype.startswith(("fp8", "float8", "int8")) else 2


@dataclass(frozen=True)
class Weights:
    """What the weights of a judge take in memory.

    Attributes:
        bytes: bytes in all; None if they cannot be told.
        how: how that was found, a phrase.
        certainty: whether it was measured, estimated, or is unknown.
    """

    bytes: int | None
    how: str
    certainty: Certainty


def weights_on_disk(size: int, config: Mapping[str, Any], dtype: str) -> Weights:
    """Return what weights take in memory that lie on disk.

    Args:
        size: bytes of the files.
        config: the judge's config.json.
        dtype: number type that they are computed in; quantized weights stay as they are.
    """
    text = config.get("text_config")
    tables = (config, text if isinstance(text, dict) else {})
    named = (str(table.get(key)) for table in tables for key in ("dtype", "torch_dtype") if table.get(key))
    stored = next(named, "")
    if any("quantization_config" in table for table in tables) or not stored or dtype == "auto":
        return Weights(size, "their files", "known")
    there, wanted = bytes_of(stored), bytes_of(dtype)
    if there == wanted:
        return Weights(size, "their files", "known")
    return Weights(size * wanted // there, f"their files in {stored}, computed in {dtype}", "known")


def weights_before_fetching(judge: Judge, dtype: str) -> Weights:
    """Return what the weights of a judge will take, by what models.toml says of them.

    Args:
        judge: the judge.
        dtype: number type that it is computed in.
    """
    for source in judge.sources:
        if isinstance(source, WheelsSource) and source.size is not None:
            size = int(source.size * _FROM_GGUF) * bytes_of(dtype) // 2
            return Weights(size, f"{_FROM_GGUF} x the GGUF file of {source.size:,} bytes", "estimated")
        if isinstance(source, GgufSource) and source.path.is_file():
            size = source.path.stat().st_size
            return Weights(
                int(size * _FROM_GGUF) * bytes_of(dtype) // 2, f"{_FROM_GGUF} x its GGUF file", "estimated"
            )
    found = _PARAMETERS.match(judge.parameters)
    if found is None or dtype == "auto":
        return Weights(None, "its number type is known once it is fetched", "unknown")
    count = float(found[1]) * (10**9 if found[2] == "B" else 10**6)
    return Weights(int(count * bytes_of(dtype)), f"{found[0]} parameters in {dtype}", "estimated")
