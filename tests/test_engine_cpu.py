"""What vLLM is told when there is no GPU."""

import json
import os

import pytest

from offline_summ.engines.cpu import computes_in_16_bits, cpu_arguments, cpu_dtype

CONFIG = {
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "num_hidden_layers": 28,
    "hidden_size": 1536,
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "auto", "float32"])
def test_a_cpu_without_16_bit_floats_computes_in_32(folder, dtype):
    assert cpu_dtype(dtype, folder, computes_in_16_bits=False) == "float32"
    assert cpu_dtype(dtype, folder, computes_in_16_bits=True) == dtype


def test_quantized_weights_keep_their_type(folder):
    (folder / "config.json").write_text(
        json.dumps({**CONFIG, "quantization_config": {"quant_method": "awq"}})
    )
    assert cpu_dtype("auto", folder, computes_in_16_bits=False) == "auto"


def test_what_this_cpu_can_do_is_known():
    flags = set()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith(("flags", "Features")):
                flags |= set(line.partition(":")[2].split())
    if {"avx512_bf16", "amx_bf16", "bf16"} & flags:
        assert computes_in_16_bits()
    if "avx2" in flags and not any(flag.startswith(("avx512", "amx", "avx_ne")) for flag in flags):
        assert not computes_in_16_bits()


@pytest.mark.parametrize(("dtype", "size"), [("bfloat16", 2), ("auto", 2), ("float32", 4)])
def test_keys_and_values_of_a_full_context_find_room(folder, dtype, size):
    keys_and_values = 2 * CONFIG["num_hidden_layers"] * CONFIG["num_key_value_heads"] * 128 * size
    found = cpu_arguments(folder, 32768, dtype, {})["kv_cache_memory_bytes"]
    assert 32768 * keys_and_values < found < 1.1 * max(32768 * keys_and_values, 2**30)
    assert cpu_arguments(folder, 100, dtype, {})["kv_cache_memory_bytes"] == 2**30


def test_few_cores_compute_in_one_process(folder, monkeypatch):
    for cores, one_process in ((2, True), (8, True), (9, False)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: set(range(n)))
        environ = {"VLLM_CPU_OMP_THREADS_BIND": "0"}
        arguments = cpu_arguments(folder, 100, "bfloat16", environ)
        assert ("distributed_executor_backend" in arguments) is one_process
        assert (environ.get("OMP_NUM_THREADS") == str(cores)) is one_process
        assert environ["VLLM_CPU_OMP_THREADS_BIND"] == "0", "what a user has set stays"
