"""How much of vLLM's own speed a run keeps: our run, then its requests straight through `LLM.generate`.

For each protocol one process scores examples with `score_many` and notes every request that reaches vLLM, and
a second one gives the same token ids with the same sampling parameters to vLLM's own `LLM.generate`, all at
once, in the order in which they were asked. Loading and the compilation of grammars are in neither time. The
last line is JSON; a ratio of 1 means that the run loses nothing.
"""

import argparse
import asyncio
import json
import pickle
import re
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def pairs(count):
    """Return pairs of a source and a summary that are all different, made of the sentences of one example."""
    source = re.split(r"(?<=[.!?])\s+", (EXAMPLES / "company/source.txt").read_text(encoding="utf-8").strip())
    summary = re.split(r"(?<=[.!?])\s+", (EXAMPLES / "company/good.txt").read_text(encoding="utf-8").strip())
    return [
        (
            f"Report {number}. " + " ".join(source[number % len(source) :] + source[: number % len(source)]),
            f"Report {number}. "
            + " ".join(summary[number % len(summary) :] + summary[: number % len(summary)]),
        )
        for number in range(count)
    ]


def engine_of(kind, judge, folder):
    from offline_summ.judges import load_registry
    from offline_summ.weights import default_home, open_judge

    found, home = load_registry().get(judge), default_home()
    return kind(
        found, partial(open_judge, found, home), log_folder=Path(folder), grammar_folder=home / "grammars"
    )


def ours(judge, protocol, count, folder):
    """Score the examples, and write down what vLLM was asked and how long it took."""
    from offline_summ import SummarizationOptions, SummarizationScorer
    from offline_summ.engines.vllm import VLLMEngine

    asked, replies, tokens = [], [], {"prompt": 0, "cached": 0, "generated": 0}

    class Recording(VLLMEngine):
        async def warm_up(self, forms):
            replies.extend(form.name for form in forms)
            await super().warm_up(forms)
            asked.clear()
            tokens.update(dict.fromkeys(tokens, 0))

        async def _output(self, llm, ids, parameters, where):
            asked.append((ids, parameters))
            output = await super()._output(llm, ids, parameters, where)
            tokens["prompt"] += len(ids)
            tokens["cached"] += output.num_cached_tokens or 0
            tokens["generated"] += len(output.outputs[0].token_ids)
            return output

    scorer = SummarizationScorer(engine_of(Recording, judge, folder), SummarizationOptions(protocol=protocol))
    with scorer:
        scorer.start()
        started = time.monotonic()
        results = list(scorer.score_many(pairs(count)))
        seconds = time.monotonic() - started
    scored = sum(result.failure is None for result in results)
    Path(folder, "asked").write_bytes(pickle.dumps(asked))
    Path(folder, "ours").write_text(json.dumps({"seconds": seconds, "scored": scored, **tokens}))


def raw(judge, folder):
    """Give the requests to `LLM.generate`, and write down how long it took."""
    from offline_summ.engines.vllm import VLLMEngine

    class Raw(VLLMEngine):
        def _create(self, arguments):
            from vllm import LLM

            return LLM(**arguments)

    engine = engine_of(Raw, judge, folder)
    asyncio.run(engine.start())
    from vllm import TokensPrompt

    asked = pickle.loads(Path(folder, "asked").read_bytes())
    llm = engine._llm
    forms = {}
    for ids, parameters in asked:
        form = parameters.structured_outputs
        forms.setdefault(None if form is None else form.regex, (ids, parameters))
    for _, parameters in forms.values():  # compiles each grammar, with a prompt that no request shares
        one = parameters.clone()
        one.max_tokens = 1
        llm.generate([TokensPrompt(prompt_token_ids=[5, 6, 7])], [one], use_tqdm=False)
    prompts = [TokensPrompt(prompt_token_ids=ids) for ids, _ in asked]
    started = time.monotonic()
    outputs = llm.generate(prompts, [parameters for _, parameters in asked], use_tqdm=False)
    seconds = time.monotonic() - started
    tokens = {
        "prompt": sum(len(ids) for ids, _ in asked),
        "cached": sum(output.num_cached_tokens or 0 for output in outputs),
        "generated": sum(len(output.outputs[0].token_ids) for output in outputs),
    }
    Path(folder, "raw").write_text(json.dumps({"seconds": seconds, **tokens}))


def speed(run):
    return (run["prompt"] + run["generated"]) / run["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judge", default="qwen2.5-coder-0.5b", metavar="NAME")
    parser.add_argument("--examples", type=int, default=64, metavar="N")
    parser.add_argument("--protocol", action="append", choices=("joint", "itemized"), help="default: both")
    parser.add_argument("--part", nargs=2, metavar=("PART", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        part, folder = arguments.part
        if part == "raw":
            raw(arguments.judge, folder)
        else:
            ours(arguments.judge, arguments.protocol[0], arguments.examples, folder)
        return

    outcome = {"judge": arguments.judge, "examples": arguments.examples}
    print(f"{'protocol':<9} {'run':<4} {'seconds':>8} {'tokens/s':>9} {'prompt':>8} {'cached':>7} generated")
    for protocol in arguments.protocol or ["joint", "itemized"]:
        with tempfile.TemporaryDirectory() as folder:
            base = [sys.executable, __file__, "--judge", arguments.judge, "--protocol", protocol]
            base += ["--examples", str(arguments.examples)]
            for part in ("ours", "raw"):
                with Path(folder, f"{part}.log").open("w") as log:
                    done = subprocess.run([*base, "--part", part, folder], stderr=log, stdout=log)
                if done.returncode:
                    sys.exit(Path(folder, f"{part}.log").read_text()[-3000:])
            runs = {part: json.loads(Path(folder, part).read_text()) for part in ("ours", "raw")}
        for part, run in runs.items():
            print(
                f"{protocol:<9} {part:<4} {run['seconds']:>8.1f} {speed(run):>9.0f} {run['prompt']:>8} "
                f"{run['cached'] / run['prompt']:>7.0%} {run['generated']:>9}",
                flush=True,
            )
        outcome[protocol] = {
            "ratio_to_raw_vllm": round(speed(runs["ours"]) / speed(runs["raw"]), 3),
            "cached_share": round(runs["ours"]["cached"] / runs["ours"]["prompt"], 3),
            "scored": runs["ours"]["scored"],
        }
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
