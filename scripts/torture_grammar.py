"""Drives the worst judge imaginable through every reply: random weights, hot or greedy, cut everywhere.

Each grammar backend decodes a share of the replies, with texts that the grammar ends and with texts that only
the token limit ends, in a process of its own. Every reply must end as a parsed reply or as a failure with a
kind, and of every verdict in it the judge must have decoded the first letter, which tells the verdict. The
last line is JSON.
"""

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

SETTINGS = (
    ("guidance", False),
    ("guidance", True),
    ("outlines", False),
    ("xgrammar", False),
    ("xgrammar", True),
)
TEMPERATURES = (0.0, 1.0, 1.5)
AT_ONCE = 96
VERDICT = re.compile(r'"(?:supported|answered|verdict)":"(yes|no)"')
WORDS = (
    "mill", "river", '"', "\\", "{", "}", "\n", "雨", "山田　太郎", "🌧️", "مرحبا", "<|im_end|>", "</source>",
    '{"claims":[', "é", "\u0301", "\t", "\u0007", "42", "not",
)  # fmt: skip


@dataclass(frozen=True)
class Hurried:
    """A reply form with a smaller budget, so that it is cut in all sorts of places."""

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


class Tormentor:
    """Passes requests on to the engine, hotter and more hurried, and keeps what came back."""

    def __init__(self, engine, seed, generous):
        self._engine = engine
        self._generous = generous
        self._random = random.Random(seed)
        self._temperature = TEMPERATURES[seed % len(TEMPERATURES)]
        self.turns = []

    async def generate(self, request):
        budget = request.reply.max_tokens
        if self._random.random() < 0.5:
            budget = self._random.randint(1, budget)
        elif self._generous:  # so that texts reach their limit of characters
            budget *= 8
        hurried = replace(
            request,
            reply=Hurried(request.reply, budget),
            temperature=self._temperature,
            seed=None,  # vLLM's CPU build cannot seed a request whose prompt it reads in two steps
        )
        completion = await self._engine.generate(hurried)
        self.turns.append((request, completion))
        return completion

    def decided(self, reply, at):
        """Whether the judge itself wrote the character of `reply` at `at`, and everything before it stood."""
        for request, completion in self.turns:
            text = request.begun + completion.text
            if len(request.begun) <= at < len(text) and reply.startswith(text[: at + 1]):
                return True
        return False


def grammars():
    from offline_summ import grammar

    return (
        grammar.judgement_grammar(axes="both", max_claims=4, max_questions=3),
        grammar.judgement_grammar(axes="alignment", max_claims=4, max_questions=1),
        grammar.judgement_grammar(axes="coverage", max_claims=0, max_questions=3),
        grammar.coverage_grammar(1),
        grammar.coverage_grammar(5),
        grammar.reason_grammar(),
        grammar.verdict_grammar(reason_first=True),
        grammar.verdict_grammar(reason_first=False),
        grammar.claims_grammar(4),
        grammar.questions_grammar(3),
        grammar.explanation_grammar("Not stated in the source: ", quotes=False),
        grammar.explanation_grammar("原文にあります：", quotes=True),
    )


async def torment(engine, number, grammar, generous):
    from offline_summ.errors import OfflineSummError
    from offline_summ.prompts import Prompt
    from offline_summ.protocols.dialogue import Dialogue

    tormentor = Tormentor(engine, number, generous)
    words = random.Random(number)
    text = " ".join(words.choice(WORDS) for _ in range(words.randint(1, 60)))
    prompt = Prompt(system="You judge.", user=text)
    counts = Counter(replies=1)
    try:
        answer = await Dialogue(tormentor).ask("source_judgement", prompt, grammar)
    except OfflineSummError as error:
        kind = getattr(error, "kind", "judge_error")
        counts[f"failure:{kind}"] += 1
        if kind in ("judge_error", "invalid_reply"):
            print(f"{grammar.name}: {error}", file=sys.stderr)
    except Exception as error:  # noqa: BLE001 - what no caller expects is what this script looks for
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        counts["exceptions"] += 1
    else:
        counts["valid"] += 1
        counts["verdicts"] += len(VERDICT.findall(answer.text))
        counts["invented_verdicts"] += sum(
            not tormentor.decided(answer.text, found.start(1)) for found in VERDICT.finditer(answer.text)
        )
    finishes = [completion.finish_reason for _, completion in tormentor.turns]
    counts["cut"] += any(reason == "length" for reason in finishes)
    counts["stopped_repeating"] += any(reason == "repetition" for reason in finishes)
    counts["tokens"] += sum(completion.generated_tokens for _, completion in tormentor.turns)
    return counts


async def work(backend, bounded, replies, folder):
    from tiny_judge import CONTEXT, build

    from offline_summ.engines.vllm import VLLMEngine
    from offline_summ.judge_sources import FolderSource
    from offline_summ.judges import Judge
    from offline_summ.weights import PreparedJudge

    build("bytes", folder / "judge", vocabulary=320, spread=0.02)
    source = FolderSource(path=folder / "judge")
    judge = Judge(
        name="random",
        licence="none",
        context_length=CONTEXT // 2,
        grammar_backend=backend,
        sources=(source,),
        engine={"kv_cache_memory_bytes": 2**28},
    )
    engine = VLLMEngine(
        judge,
        lambda: PreparedJudge(judge, folder / "judge", "0" * 64, source),
        log_folder=folder / "logs",
        bounds_texts=bounded,
    )
    await engine.start()
    total, at_once = Counter(), asyncio.Semaphore(AT_ONCE)
    forms = grammars()

    async def one(number):
        async with at_once:
            form = forms[number // len(TEMPERATURES) % len(forms)]
            return await torment(engine, number, form, bounded)

    try:
        for done in asyncio.as_completed([one(number) for number in range(replies)]):
            total.update(await done)
    finally:
        await engine.close()
    return total


def share_of(replies, position):
    return replies // len(SETTINGS) + (position < replies % len(SETTINGS))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replies", type=int, default=1000, metavar="N")
    parser.add_argument("--worker", nargs=2, metavar=("BACKEND", "BOUNDED"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        backend, bounded = arguments.worker
        with tempfile.TemporaryDirectory() as folder:
            total = asyncio.run(work(backend, bounded == "True", arguments.replies, Path(folder)))
        print(json.dumps(total))
        return
    total = Counter()
    columns = ("replies", "valid", "cut", "stopped_repeating", "verdicts", "tokens")
    print(f"{'backend':<10} {'texts end by':<13}", *(f"{column:>17}" for column in columns), "seconds")
    for position, (backend, bounded) in enumerate(SETTINGS):
        started = time.monotonic()
        command = [sys.executable, __file__, "--replies", str(share_of(arguments.replies, position))]
        done = subprocess.run(
            [*command, "--worker", backend, str(bounded)], stdout=subprocess.PIPE, text=True, check=True
        )
        counts = Counter(json.loads(done.stdout.splitlines()[-1]))
        total.update(counts)
        limit = "grammar" if bounded else "token limit"
        seconds = f"{time.monotonic() - started:.0f}"
        print(f"{backend:<10} {limit:<13}", *(f"{counts[column]:>17}" for column in columns), seconds)
    failures = {key.split(":")[1]: n for key, n in sorted(total.items()) if key.startswith("failure:")}
    typed = total["valid"] + sum(failures.values())
    figures = {column: total[column] for column in columns}
    print(
        json.dumps(
            {
                **figures,
                "failures": failures,
                "exceptions": total["exceptions"],
                "invented_verdicts": total["invented_verdicts"],
                "untyped": arguments.replies - typed - total["exceptions"],
            }
        )
    )


if __name__ == "__main__":
    main()
