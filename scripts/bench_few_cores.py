"""Times vLLM's default process layout on a CPU against the one this package chooses on few cores.

Both load the same judge in a process of its own, one after the other, and decode the same requests: prompts
of about 400 tokens, replies of 100 tokens, alone and five at once. Prints a table and one JSON line with
ratios (default / ours; above 1 means that ours is faster).
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from offline_summ.engines.base import Message, Request
from offline_summ.engines.vllm import VLLMEngine
from offline_summ.judges import load_registry, resolve_judge
from offline_summ.weights import default_home, open_judge

LAYOUTS = {
    "default": {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_CPU_OMP_THREADS_BIND": "auto"},
    "ours": {},
}
SOURCE = Path(__file__).resolve().parent.parent / "examples" / "company" / "source.txt"


@dataclass(frozen=True)
class Letters:
    """A reply that goes on for longer than its limit."""

    name: str = "letters"
    max_tokens: int = 100

    def output_type(self):
        from outlines.types import Regex

        return Regex("[a-z ]+")


async def measure(judge: str) -> dict[str, float]:
    home = default_home()
    chosen = resolve_judge(judge, load_registry())
    engine = VLLMEngine(chosen, lambda: open_judge(chosen, home), log_folder=home / "logs")
    text = SOURCE.read_text(encoding="utf-8")

    async def ask(mark: str) -> int:
        message = Message("user", f"{mark} {text}\nRepeat the text above in small letters.")
        return (await engine.generate(Request("coverage", (message,), Letters()))).generated_tokens

    started = time.monotonic()
    await engine.start()
    loaded = time.monotonic()
    await ask("warm")
    warm = time.monotonic()
    one_tokens = await ask("one")
    one = time.monotonic()
    five_tokens = sum(await asyncio.gather(*(ask(f"number {number}") for number in range(5))))
    five = time.monotonic()
    await engine.close()
    return {
        "load_s": loaded - started,
        "one_s": one - warm,
        "five_s": five - one,
        "one_tokens": one_tokens,
        "five_tokens": five_tokens,
    }


def main() -> None:
    judge = sys.argv[1] if len(sys.argv) > 1 else "qwen2.5-coder-1.5b"
    if len(sys.argv) > 2:
        print(json.dumps(asyncio.run(measure(judge))))
        return
    figures = {}
    for layout, environment in LAYOUTS.items():
        command = [sys.executable, __file__, judge, "measure"]
        done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, check=True)
        figures[layout] = json.loads(done.stdout.splitlines()[-1])
    columns = list(figures["ours"])
    print("layout   " + "".join(f"{column:>13}" for column in columns))
    for layout, row in figures.items():
        print(f"{layout:<9}" + "".join(f"{row[column]:13.1f}" for column in columns))
    ratios = {f"{c}_ratio": round(figures["default"][c] / figures["ours"][c], 3) for c in columns[:3]}
    print(json.dumps({"judge": judge, "cores": len(os.sched_getaffinity(0)), **ratios}))


if __name__ == "__main__":
    main()
