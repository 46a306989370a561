"""Counts the verdicts that a token limit would lose when a judge reasons before it decides.

Asks for one verdict a labelled sentence, reason first, with a limit for the whole reply, on labelled examples
(`source`, `sentences: [{text, supported}]`, one JSON object a line). A reply that the limit cuts goes on with
its verdict; without that it would be lost. The last line is JSON.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

LIMIT = 96
PROMPT = (
    "<source>\n{source}\n</source>\n\n<claim>\n{claim}\n</claim>\n\n"
    "Does the source state this claim? Explain first what the source states about it, then decide.\n"
    'Reply with a JSON object of this form: {{"reason":"...","verdict":"yes"}}'
)


def examples(file, count):
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for _, line in zip(range(count), lines, strict=False)]


async def work(arguments, folder):
    from offline_summ.engines.vllm import VLLMEngine
    from offline_summ.errors import ExampleError
    from offline_summ.grammar import verdict_grammar
    from offline_summ.judges import load_registry
    from offline_summ.prompts import Prompt
    from offline_summ.protocols.dialogue import Dialogue
    from offline_summ.weights import default_home, open_judge

    frame = verdict_grammar(reason_first=True, reason_tokens=0).max_tokens
    grammar = verdict_grammar(reason_first=True, reason_tokens=LIMIT - frame)
    assert grammar.max_tokens == LIMIT
    judge = load_registry().get(arguments.judge)
    engine = VLLMEngine(judge, lambda: open_judge(judge, default_home()), log_folder=folder)
    await engine.start()
    await engine.warm_up([grammar, *grammar.pieces()])
    at_once = asyncio.Semaphore(8)

    async def one(source, sentence):
        dialogue = Dialogue(engine)
        prompt = Prompt(system="You check claims.", user=PROMPT.format(source=source, claim=sentence["text"]))
        async with at_once:
            try:
                answer = await dialogue.ask("coverage", prompt, grammar)
            except ExampleError as error:
                return {"failure": error.kind}
        first = dialogue.completions[0]
        right = (answer.reply.verdict == "yes") == sentence["supported"]
        return {"cut": first.finish_reason, "calls": len(dialogue.completions), "right": right}

    started = time.monotonic()
    rows = [row for row in examples(arguments.data, arguments.articles)]
    asked = [one(row["source"], sentence) for row in rows for sentence in row["sentences"]]
    try:
        done = await asyncio.gather(*asked)
    finally:
        await engine.close()
    return rows, done, time.monotonic() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="labelled examples, JSON Lines")
    parser.add_argument("--articles", type=int, default=40, metavar="N")
    parser.add_argument("--judge", default="qwen2.5-coder-1.5b", metavar="NAME")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows, done, seconds = asyncio.run(work(arguments, Path(folder)))
    figures = {
        "articles": len(rows),
        "sentences": len(done),
        "verdicts": sum("failure" not in each for each in done),
        "cut_at_the_limit": sum(each.get("cut") == "length" for each in done),
        "stopped_repeating": sum(each.get("cut") == "repetition" for each in done),
        "lost": sum("failure" in each for each in done),
        "right": sum(each.get("right", False) for each in done),
        "seconds": round(seconds),
    }
    for name, value in figures.items():
        print(f"{name:<20}{value:>6}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
