"""How the network is closed for real weights on real vLLM."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_airgap import needs_namespace
from test_vllm import SOURCE, Loaded, children_of

from offline_summ.judges import load_registry
from offline_summ.weights import open_judge

pytestmark = pytest.mark.judge

JUDGE = "smollm2-135m"


def network_of(process):
    return Path(f"/proc/{process}/ns/net").readlink()


@needs_namespace
def test_the_engine_of_an_open_program_has_a_network_of_its_own(home, tmp_path):
    before = set(children_of(os.getpid()))
    loaded = Loaded(open_judge(load_registry().get(JUDGE), home), tmp_path)
    try:
        engine = [
            child
            for child in set(children_of(os.getpid())) - before
            if "resource_tracker" not in Path(f"/proc/{child}/cmdline").read_text()
        ]
        assert engine
        assert loaded.engine.record.network == "engine_namespace"
        assert all(network_of(child) != network_of("self") for child in engine)
    finally:
        loaded.close()


def test_a_score_where_the_system_gives_no_namespace_is_guarded_and_says_so(home, tmp_path):
    (tmp_path / "source.txt").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "summary.txt").write_text("The library of Ulmen moved.", encoding="utf-8")
    # The command line as it is, on a system that answers the question for a namespace with no.
    program = (
        "import sys; from offline_summ import airgap, cli; "
        "airgap.why_no_namespace = lambda: 'forbidden here'; cli.main()"
    )
    texts = [tmp_path / "source.txt", tmp_path / "summary.txt"]
    options = ["--judge", JUDGE, "--home", home, "--json", "--axes", "alignment", "-q"]
    done = subprocess.run(
        [sys.executable, "-c", program, "score", *map(str, [*texts, *options])],
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 4), done.stderr
    assert json.loads(done.stdout)["run"]["network"] == "guard"
    assert done.stderr.splitlines()[0] == (
        "offline-summ: No network namespace (forbidden here); "
        "a guard inside Python refuses connections instead."
    )
