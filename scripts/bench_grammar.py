"""Compares the grammar backends: time to compile, decode throughput with and without a grammar, memory.

Each backend runs the same judge in a process of its own. Compile time is the time from the first request
under a grammar to its first token, with no cache on disk. Throughput is measured with 16 requests at once
whose prompts are in the prefix cache: first under the grammar, then as many tokens a request without one.
`ratio` is tokens per second under the grammar over tokens per second without. The last line is JSON.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SETTINGS = (("guidance", False), ("guidance", True), ("outlines", False), ("xgrammar", False))
MEASURED = ("judgement, 16 claims", "coverage, 10 questions", "reason")
ROUNDS = 2
AT_ONCE = 16
SUBJECTS = ("mill", "bridge", "library", "school", "harbour", "museum", "theatre", "station")


def forms():
    from offline_summ import grammar

    return {
        "judgement, 4 claims": grammar.judgement_grammar(axes="both", max_claims=4, max_questions=10),
        "judgement, 16 claims": grammar.judgement_grammar(axes="both", max_claims=16, max_questions=10),
        "judgement, 48 claims": grammar.judgement_grammar(axes="both", max_claims=48, max_questions=10),
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


async def decode(engine, form, lengths):
    """Decode as many replies as there are lengths, 16 at once; return their lengths and the seconds taken.

    Args:
        form: the grammar of the replies; None decodes freely.
        lengths: most tokens of each reply; free replies have just as many.
    """
    llm, encoder = engine._loaded()
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(number, tokens):
        async with at_once:
            ids = encoder.encode(encoder.render(messages(number % AT_ONCE)))
            parameters = engine._parameters(
                reply=form, max_tokens=tokens, temperature=0.0, ignore_eos=form is None
            )
            parameters.repetition_detection = None
            return len((await engine._output(llm, ids, parameters, "while measuring")).outputs[0].token_ids)

    started = time.monotonic()
    decoded = await asyncio.gather(*(one(number, tokens) for number, tokens in enumerate(lengths)))
    return decoded, time.monotonic() - started


def memory_mib():
    """Return the sum of the resident memory of this process and its children, in MiB."""
    total = 0
    for pid in (os.getpid(), *(child.pid for child in multiprocessing.active_children())):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) // 1024
    return total


async def work(name, backend, bounded, tokens, folder):
    from offline_summ.engines.vllm import VLLMEngine
    from offline_summ.grammar import verdict_grammar
    from offline_summ.judges import load_registry
    from offline_summ.weights import default_home, open_judge

    judge = load_registry().get(name).model_copy(update={"grammar_backend": backend})
    engine = VLLMEngine(
        judge,
        lambda: open_judge(judge, default_home()),
        log_folder=folder / "logs",
        bounds_texts=bounded,
    )
    await engine.start()

    async def compiled(form):
        started = time.monotonic()
        await engine.warm_up([form])
        return time.monotonic() - started

    try:
        before = memory_mib()
        small = verdict_grammar(reason_first=False)
        first = await compiled(small)  # what the first grammar of all costs
        step = await compiled(small)  # what one token costs
        compile_s = {kind: max(await compiled(form) - step, 0.0) for kind, form in forms().items()}
        after = memory_mib()
        await decode(engine, None, [4] * AT_ONCE)  # fills the prefix cache
        throughput = {}
        for kind in MEASURED:
            held_s = free_s = count = 0
            for _ in range(ROUNDS):
                lengths, seconds = await decode(engine, forms()[kind], [tokens] * AT_ONCE)
                held_s, count = held_s + seconds, count + sum(lengths)
                free_s += (await decode(engine, None, lengths))[1]
            throughput[kind] = {"free": count / free_s, "held": count / held_s, "ratio": free_s / held_s}
        return {
            "first_s": max(first - step, 0.0),
            "compile_s": compile_s,
            "throughput": throughput,
            "grammars_mib": after - before,
            "memory_mib": memory_mib(),
        }
    finally:
        await engine.close()


def worked(arguments, backend, bounded):
    """Return the figures of a setting measured in a process of its own; None if it took too long."""
    command = [sys.executable, __file__, "--judge", arguments.judge, "--tokens", str(arguments.tokens)]
    process = subprocess.Popen(
        [*command, "--worker", backend, str(bounded)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=arguments.timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None
    if process.returncode:
        raise SystemExit(f"{backend} ended with {process.returncode}")
    return json.loads(out.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judge", default="qwen2.5-coder-1.5b", metavar="NAME")
    parser.add_argument("--tokens", type=int, default=40, metavar="N", help="tokens a reply")
    parser.add_argument("--timeout", type=int, default=900, metavar="S", help="most seconds a backend")
    parser.add_argument("--worker", nargs=2, metavar=("BACKEND", "BOUNDED"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        backend, bounded = arguments.worker
        with tempfile.TemporaryDirectory() as folder:
            measured = work(arguments.judge, backend, bounded == "True", arguments.tokens, Path(folder))
            print(json.dumps(asyncio.run(measured)))
        return
    print(f"judge {arguments.judge}, {AT_ONCE} requests at once, {arguments.tokens} tokens a reply")
    print(f"{'backend':<10} {'texts end by':<12} {'reply':<24}{'compile s':>10}", end="")
    print(f"{'free tok/s':>12}{'held tok/s':>12}{'ratio':>8}")
    figures = {}
    for backend, bounded in SETTINGS:
        limit = "grammar" if bounded else "token limit"
        measured = worked(arguments, backend, bounded)
        if measured is None:
            print(f"{backend:<10} {limit:<12} did not end in {arguments.timeout} s", flush=True)
            figures[f"{backend}, {limit}"] = None
            continue
        for kind, seconds in measured["compile_s"].items():
            rates = measured["throughput"].get(kind)
            shown = "{free:>12.1f}{held:>12.1f}{ratio:>8.2f}".format(**rates) if rates else ""
            print(f"{backend:<10} {limit:<12} {kind:<24}{seconds:>10.2f}{shown}")
        ratios = [rates["ratio"] for rates in measured["throughput"].values()]
        figures[f"{backend}, {limit}"] = {
            "compile_s": round(sum(measured["compile_s"].values()), 2),
            "first_grammar_s": round(measured["first_s"], 2),
            "ratio_mean": round(sum(ratios) / len(ratios), 3),
            "ratio_min": round(min(ratios), 3),
            "grammars_mib": measured["grammars_mib"],
            "memory_mib": measured["memory_mib"],
        }
        print(f"{backend:<10} {limit:<12} {figures[f'{backend}, {limit}']}", flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
