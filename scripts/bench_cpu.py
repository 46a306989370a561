"""Times what this package tells vLLM to do on a CPU against what vLLM does by itself.

Loads the same judge with each setting, in a process of its own, one after the other, and asks the same: five
prompts of about 400 tokens at once for one word each, then for a text of 24 tokens each. `layout` leaves
vLLM's processes as they are by default; `bfloat16` and `float32` fix the number type. Prints a table and one
JSON line with ratios (setting / ours; above 1 means that ours is faster).
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

SETTINGS = {
    "ours": ({}, {}),
    "layout": ({"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_CPU_OMP_THREADS_BIND": "auto"}, {}),
    "bfloat16": ({}, {"dtype": "bfloat16"}),
    "float32": ({}, {"dtype": "float32"}),
}
SOURCE = Path(__file__).resolve().parent.parent / "examples" / "company" / "source.txt"


@dataclass(frozen=True)
class Letters:
    """A reply that is longer than its limit, or stops at its first letter."""

    pattern: str
    max_tokens: int

    @property
    def name(self):
        return self.pattern

    min_tokens = 1

    def output_type(self, *, bounded=False):
        from outlines.types import Regex

        return Regex(self.pattern)


async def measure(judge, engine_arguments):
    from offline_summ.engines.base import Message, Request
    from offline_summ.engines.vllm import VLLMEngine
    from offline_summ.judges import load_registry
    from offline_summ.weights import default_home, open_judge

    chosen, home = load_registry().get(judge), default_home()
    chosen = chosen.model_copy(update={"engine": {**chosen.engine, **engine_arguments}})
    engine = VLLMEngine(chosen, lambda: open_judge(chosen, home), log_folder=home / "logs")
    text = SOURCE.read_text(encoding="utf-8")

    async def five(mark, reply):
        messages = [Message("user", f"{mark}{n} {text}\nRepeat the text in small letters.") for n in range(5)]
        started = time.monotonic()
        await asyncio.gather(*(engine.generate(Request("coverage", (m,), reply)) for m in messages))
        return time.monotonic() - started

    started = time.monotonic()
    await engine.start()
    loaded = time.monotonic() - started
    word, letters = Letters("(Yes|No)", 1), Letters("[a-z ]{2000,}", 24)
    await five("warm", word)
    found = {"load_s": loaded, "word_s": await five("a", word), "text_s": await five("b", letters)}
    await engine.close()
    return {**found, "dtype": engine.record.dtype}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judge", default="qwen2.5-coder-0.5b", metavar="NAME")
    parser.add_argument("--settings", nargs="+", choices=tuple(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--measure", choices=tuple(SETTINGS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(asyncio.run(measure(arguments.judge, SETTINGS[arguments.measure][1]))))
        return
    figures = {}
    for setting in dict.fromkeys(["ours", *arguments.settings]):
        command = [sys.executable, __file__, "--judge", arguments.judge, "--measure", setting]
        environment = {**os.environ, **SETTINGS[setting][0]}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        figures[setting] = json.loads(done.stdout.splitlines()[-1])
        row = figures[setting]
        times = "".join(f"  {name} {row[name]:7.1f}" for name in ("load_s", "word_s", "text_s"))
        print(f"{setting:<9} {row['dtype']:<9}{times}", flush=True)
    ratios = {
        setting: {
            name: round(row[name] / figures["ours"][name], 2) for name in ("load_s", "word_s", "text_s")
        }
        for setting, row in figures.items()
    }
    cores = len(os.sched_getaffinity(0))
    print(json.dumps({"judge": arguments.judge, "cores": cores, "dtype": figures["ours"]["dtype"], **ratios}))


if __name__ == "__main__":
    main()
