"""What the kernel says of a machine."""

from offline_summ.machine import instruction_sets, memory_bytes, this_machine

GIB = 2**30


def files(root, **texts):
    for name, text in texts.items():
        path = root / ("proc/meminfo" if name == "meminfo" else f"sys/fs/cgroup/memory.{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = (
    "MemTotal:       8388608 kB\nMemFree:         100000 kB\nMemAvailable:   4194304 kB\nHugePages_Total: 0\n"
)


def test_memory_is_what_the_kernel_would_give(tmp_path):
    assert memory_bytes(files(tmp_path, meminfo=MEMINFO)) == (8 * GIB, 4 * GIB)


def test_a_container_has_no_more_than_its_limit(tmp_path):
    root = files(
        tmp_path,
        meminfo=MEMINFO,
        max=f"{2 * GIB}\n",
        current=f"{GIB}\n",
        stat=f"anon 5\ninactive_file {GIB // 2}\n",
    )
    assert memory_bytes(root) == (2 * GIB, GIB + GIB // 2)


def test_a_container_without_a_limit_has_the_machine(tmp_path):
    assert memory_bytes(files(tmp_path, meminfo=MEMINFO, max="max\n", current="5\n")) == (8 * GIB, 4 * GIB)


def test_the_instruction_sets_that_matter_are_named():
    assert instruction_sets("model name: avx2 amx\nflags\t\t: fpu avx2 avx512f amx_bf16\n") == (
        "avx2",
        "avx512f",
        "amx_bf16",
    )
    assert instruction_sets("Features\t: fp asimd bf16\n") == ("asimd", "bf16")
    assert instruction_sets("") == ()


def test_torch_and_vllm_are_imported_in_a_process_of_their_own():
    found = this_machine()
    assert found.vllm.version.startswith("0.3")
    assert found.torch.error == ""
    assert found.cores >= 1
    assert 0 < found.free_bytes < found.total_bytes
