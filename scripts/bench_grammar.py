"""Compares the grammar backends: time to compile, decode throughput with and without a grammar, memory.

Each backend runs the same judge in a process of its own. Compile time is the time from the first request
under a grammar to its first token, with no cache on disk. Throughput is measured with 16 requests at once
whose prompts are in the prefix cache; `ratio` is tokens per second under the grammar over tokens per second
without one, in the same process. The last line is JSON.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

BACKENDS = ("guidance", "outlines", "xgrammar")
AT_ONCE = 16
SUBJECTS = ("mill", "bridge", "library", "school", "harbour", "museum", "theatre", "station")


@dataclass(frozen=True)
class Shortened:
    """A reply form that is cut after some tokens, so that all replies of a batch are equally long."""

    whole: object
    max_tokens: int

    @property
    def name(self):
        return self.whole.name

    @property
    def min_tokens(self):
        return self.whole.min_tokens

    def output_type(self, *, bounded=False):
        return self.whole.output_type(bounded=bounded)


def forms():
    from offline_summ import grammar

    return {
        "judgement, 4 claims": grammar.judgement_grammar(axes="both", max_claims=4, max_questions=10),
        "judgement, 16 claims": grammar.judgement_grammar(axes="both", max_claims=16, max_questions=10),
        "judgement, 48 claims": grammar.judgement_grammar(axes="both", max_claims=48, max_questions=10),
        "coverage, 2 questions": grammar.coverage_grammar(2),
        "coverage, 10 questions": grammar.coverage_grammar(10),
        "reason": grammar.reason_grammar(),
        "verdict, reason first": grammar.verdict_grammar(reason_first=True),
    }


def messages(number):
    from offline_summ.engines.base import Message

    subject = SUBJECTS[number % len(SUBJECTS)]
    text = (
        f"The {subject} of town {number} was rebuilt in {1950 + number}. It cost {number + 2} million euros."
    )
    return (Message("user", f"{text} Write down every claim and every question that this text answers."),)


async def tokens_per_second(engine, form, tokens):
    """Return decode throughput over full batches; `form` None decodes freely."""
    from offline_summ.engines.base import Request

    async def one(number):
        if form is not None:
            request = Request("source_judgement", messages(number), Shortened(form, tokens))
            return (await engine.generate(request)).generated_tokens
        llm, encoder = engine._loaded()
        ids = encoder.encode(encoder.render(messages(number)))
        parameters = engine._parameters(reply=None, max_tokens=tokens, temperature=0.0, ignore_eos=True)
        return len((await engine._output(llm, ids, parameters, "free")).outputs[0].token_ids)

    started = time.monotonic()
    counts = await asyncio.gather(*map(one, range(AT_ONCE)))
    return sum(counts) / (time.monotonic() - started), sum(counts)


def peak_mib():
    """Return the sum of the peak resident memory of this process and its children, in MiB."""
    import multiprocessing
    import os

    total = 0
    for pid in (os.getpid(), *(child.pid for child in multiprocessing.active_children())):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                total += int(line.split()[1]) // 1024
    return total


async def work(name, backend, tokens, folder):
    from offline_summ.engines.vllm import VLLMEngine
    from offline_summ.judges import load_registry
    from offline_summ.weights import default_home, open_judge

    judge = load_registry().get(name).model_copy(update={"grammar_backend": backend})
    engine = VLLMEngine(judge, lambda: open_judge(judge, default_home()), log_folder=folder / "logs")
    await engine.start()
    try:
        from offline_summ.grammar import verdict_grammar

        loaded = peak_mib()
        started = time.monotonic()
        await engine.warm_up([verdict_grammar(reason_first=False)])  # what the first grammar of all costs
        first = time.monotonic() - started
        rows = []
        for form in forms().values():
            started = time.monotonic()
            await engine.warm_up([form])
            rows.append({"compile_s": time.monotonic() - started})
        started = time.monotonic()
        await engine.warm_up([verdict_grammar(reason_first=False)])
        step = time.monotonic() - started
        compiled = peak_mib()
        await tokens_per_second(engine, None, 4)
        for row, form in zip(rows, forms().values(), strict=True):
            row["compile_s"] = max(row["compile_s"] - step, 0.0)
            free, _ = await tokens_per_second(engine, None, tokens)
            held, row["tokens"] = await tokens_per_second(engine, form, tokens)
            row |= {"free": free, "held": held, "ratio": held / free}
        return {
            "first_s": first - step,
            "rows": rows,
            "compile_mib": compiled - loaded,
            "peak_mib": peak_mib(),
        }
    finally:
        await engine.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judge", default="qwen2.5-coder-1.5b", metavar="NAME")
    parser.add_argument("--tokens", type=int, default=48, metavar="N", help="tokens a reply")
    parser.add_argument("--worker", metavar="BACKEND", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        with tempfile.TemporaryDirectory() as folder:
            worked = work(arguments.judge, arguments.worker, arguments.tokens, Path(folder))
            print(json.dumps(asyncio.run(worked)))
        return
    print(f"judge {arguments.judge}, {AT_ONCE} requests at once, {arguments.tokens} tokens a reply")
    print(f"{'backend':<10} {'reply':<24}{'compile s':>10}{'free tok/s':>12}{'held tok/s':>12}{'ratio':>8}")
    figures = {}
    for backend in BACKENDS:
        command = [sys.executable, __file__, "--judge", arguments.judge, "--tokens", str(arguments.tokens)]
        done = subprocess.run([*command, "--worker", backend], stdout=subprocess.PIPE, text=True, check=True)
        measured = json.loads(done.stdout.splitlines()[-1])
        for name, row in zip(forms(), measured["rows"], strict=True):
            numbers = f"{row['compile_s']:>10.2f}{row['free']:>12.1f}{row['held']:>12.1f}{row['ratio']:>8.2f}"
            print(f"{backend:<10} {name:<24}{numbers}")
        ratios = [row["ratio"] for row in measured["rows"]]
        figures[backend] = {
            "compile_s": round(sum(row["compile_s"] for row in measured["rows"]), 2),
            "first_grammar_s": round(measured["first_s"], 2),
            "ratio_mean": round(sum(ratios) / len(ratios), 3),
            "ratio_min": round(min(ratios), 3),
            "compile_mib": measured["compile_mib"],
            "peak_mib": measured["peak_mib"],
        }
        print(f"{backend:<10} {figures[backend]}", flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
