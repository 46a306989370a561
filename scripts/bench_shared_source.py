"""What further summaries of one source cost: prompt tokens net of the prefix cache.

Scores summaries of one source, and as many with a source of their own each, all texts of one length, with
`score_many` in the protocol `itemized`. Counted are the prompt tokens that did not come from the prefix
cache. The last line is JSON.
"""

import argparse
import json
import re
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def sentences(name):
    return re.split(r"(?<=[.!?])\s+", (EXAMPLES / name).read_text(encoding="utf-8").strip())


def turned(texts, number):
    """Return the sentences in another order, after a first word of their own that no prefix survives."""
    at = number % len(texts)
    return f"Report {number:03d}. " + " ".join(texts[at:] + texts[:at])


def cost(judge, pairs):
    from offline_summ import SummarizationOptions, SummarizationScorer

    with SummarizationScorer(judge, SummarizationOptions(protocol="itemized", reasons="none")) as scorer:
        results = list(scorer.score_many(pairs))
    prompt = sum(result.run.tokens.prompt for result in results)
    cached = sum(result.run.tokens.cached for result in results)
    return {
        "summaries": len(results),
        "scored": sum(result.failure is None for result in results),
        "calls": sum(result.run.calls for result in results),
        "prompt_tokens": prompt,
        "net_tokens": prompt - cached,
        "cached_share": round(cached / prompt, 3),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judge", default="qwen2.5-coder-0.5b", metavar="NAME")
    parser.add_argument("--summaries", type=int, default=16, metavar="N")
    parser.add_argument("--times", type=int, default=3, metavar="N", help="length of a source, in examples")
    arguments = parser.parse_args()
    source, summary = sentences("company/source.txt") * arguments.times, sentences("company/incomplete.txt")
    summaries = [turned(summary, number) for number in range(arguments.summaries)]
    shared = cost(arguments.judge, [(turned(source, 0), each) for each in summaries])
    apart = cost(arguments.judge, [(turned(source, n), each) for n, each in enumerate(summaries)])
    for name, row in (("one source", shared), ("unrelated", apart)):
        print(
            f"{name:<11} {row['summaries']} summaries, {row['scored']} scored, {row['calls']} calls, "
            f"{row['prompt_tokens']} prompt tokens, {row['net_tokens']} net of the cache"
        )
    ratio = round(shared["net_tokens"] / apart["net_tokens"], 3)
    print(json.dumps({"judge": arguments.judge, "ratio": ratio, "one_source": shared, "unrelated": apart}))


if __name__ == "__main__":
    main()
