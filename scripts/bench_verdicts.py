"""Compares ways to decide whether a source supports a sentence, on sentences that people have judged.

For each labelled file (format: README, "Calibrate a judge") one line a method: the protocol `itemized` before
and after calibration; the share of the sentence's word pairs that the source has; and, with --joint, the
verdicts that the protocol `joint` writes about the same sentences. Figures after a fit are of documents that
it did not see. Files with key facts are compared on coverage, without the joint protocol. The last line is
JSON.
"""

import argparse
import asyncio
import itertools
import json
import re
import tempfile
import time
from collections import defaultdict
from pathlib import Path

WORD = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|\w+")


def pairs(text):
    words = WORD.findall(text.lower())
    return list(itertools.pairwise(words)) or [(word,) for word in words]


def shared(text, other):
    """Share of the word pairs of a text that another text has too."""
    wanted, there = pairs(text), set(pairs(other))
    return sum(pair in there for pair in wanted) / max(len(wanted), 1)


def lexical(item):
    return shared(item.text, item.source if item.axis == "alignment" else item.summary)


def chosen(items, half):
    """Every document belongs to one half, by the last bit of its digest."""
    bit = {"tune": 0, "held": 1}.get(half)
    return [item for item in items if bit is None or int(item.document, 16) % 2 == bit]


def judged(items, probabilities):
    from offline_summ.calibration_fit import Judged

    return [
        Judged(item.document, item.language or "en", probability, item.label)
        for item, probability in zip(items, probabilities, strict=True)
    ]


def figures(entries):
    """AUC, and balanced accuracy at 0.5 and after a fit, with 95 % intervals; None if there is no fit."""
    from offline_summ.calibration_fit import fit_scale
    from offline_summ.errors import UsageError

    try:
        scale = fit_scale(entries)
    except UsageError as error:
        print(f"  not fitted: {error}")
        return None
    named = {
        "auc": scale.before.auc,
        "at_half": scale.before.balanced_accuracy,
        "fitted": scale.after.balanced_accuracy,
        "ece": scale.before.ece,
        "ece_fitted": scale.after.ece,
    }
    return {name: [round(x, 3) for x in (e.value, e.low, e.high)] for name, e in named.items()}


def fixed_claims(claims):
    """The joint reply about the sentences that are given: only verdicts and reasons are the judge's own."""
    from offline_summ import grammar
    from offline_summ.reply_form import Fixed

    form = [Fixed('{"claims":[')]
    for position, claim in enumerate(claims):
        head = ("," if position else "") + '{"claim":' + json.dumps(claim, ensure_ascii=False)
        form += [
            Fixed(head + ',"supported":"'),
            grammar._VERDICT,
            Fixed('","reason":'),
            grammar.REASON,
            Fixed("}"),
        ]
    return grammar.ReplyGrammar(
        name=f"given-{hash(tuple(claims))}",
        form=(*form, Fixed("]}")),
        read=grammar.JudgementReply.model_validate,
    )


async def joint_verdicts(engine, prompts, items):
    """The verdicts of the joint protocol on these items, in their order; None where a reply failed."""
    from offline_summ.errors import ExampleError
    from offline_summ.protocols.dialogue import Dialogue

    rows, at_once = defaultdict(list), asyncio.Semaphore(16)
    for number, item in enumerate(items):
        rows[item.row].append(number)
    found = [None] * len(items)

    async def one(numbers):
        first, dialogue = items[numbers[0]], Dialogue(engine)
        claims = [" ".join(items[n].text.split()) for n in numbers]
        chosen = prompts.choose(first.language if first.language in prompts.languages else None, first.source)
        prompt = chosen.render(
            "joint_judgement",
            source=chosen.defuse(first.source),
            summary=chosen.defuse(first.summary),
            axes="alignment",
            max_claims=len(claims),
            max_questions=1,
        )
        async with at_once:
            try:
                answer = await dialogue.ask("source_judgement", prompt, fixed_claims(claims))
            except ExampleError:
                return
        for number, claim in zip(numbers, answer.reply.claims, strict=True):
            found[number] = claim.supported == "yes"

    await asyncio.gather(*map(one, rows.values()))
    return found


def accuracy(items, verdicts):
    rates = []
    for label in (True, False):
        own = [
            v == label
            for item, v in zip(items, verdicts, strict=True)
            if item.label is label and v is not None
        ]
        rates.append(sum(own) / max(len(own), 1))
    return sum(rates) / 2


async def measure(engine, prompts, file, arguments):
    from offline_summ.calibrator import judge_labels
    from offline_summ.labelled import read_labelled

    items = chosen(read_labelled([file]), arguments.half)
    by_document = defaultdict(list)
    for item in items:
        by_document[item.document].append(item)
    items = [item for name in sorted(by_document)[: arguments.documents] for item in by_document[name]]
    started = time.monotonic()
    labels = await judge_labels(engine, prompts, items, lambda *_: None)
    (entries,) = labels.judged.values()
    found = {
        "items": len(items),
        "documents": len({item.document for item in items}),
        "positive": round(sum(item.label for item in items) / len(items), 3),
        "left_out": sum(labels.failures.values()),
        "itemized": figures(entries),
        "lexical": figures(judged(items, map(lexical, items))),
        "prompt_tokens": labels.tokens.prompt,
        "cached_share": round(labels.tokens.cached / labels.tokens.prompt, 3),
        "seconds": round(time.monotonic() - started),
    }
    if file.stem in arguments.joint and items[0].axis == "alignment":
        verdicts = await joint_verdicts(engine, prompts, items)
        found["joint"] = {
            "balanced_accuracy": round(accuracy(items, verdicts), 3),
            "called_supported": round(sum(v is True for v in verdicts) / len(verdicts), 3),
            "failed": sum(v is None for v in verdicts),
        }
    return found, labels


async def work(arguments, folder):
    from offline_summ.calibrator import JudgedLabels
    from offline_summ.engines.vllm import VLLMEngine
    from offline_summ.judges import load_registry
    from offline_summ.prompts import load_prompts
    from offline_summ.weights import default_home, open_judge

    judge, prompts = load_registry().get(arguments.judge), load_prompts()
    engine = VLLMEngine(judge, lambda: open_judge(judge, default_home()), log_folder=folder)
    await engine.start()
    found, judged = {}, defaultdict(list)
    try:
        for file in arguments.data:
            found[file.stem], labels = await measure(engine, prompts, file, arguments)
            show(file.stem, found[file.stem])
            for axis, entries in labels.judged.items():
                judged[axis] += entries
    finally:
        await engine.close()
    if arguments.output:
        write(arguments.output, JudgedLabels(judged), engine, prompts)
    return found


def write(file, labels, engine, prompts):
    """Fit one calibration to the items of all files."""
    from rich.console import Console

    from offline_summ.calibration import save_calibration
    from offline_summ.calibration_view import calibration_view
    from offline_summ.calibrator import fit

    report = fit(labels, engine, prompts)
    save_calibration(report.calibration, file)
    Console(width=100).print(calibration_view(report.calibration, report.curves))


def show(name, found):
    def three(values):
        return "{:.3f} [{:.2f}, {:.2f}]".format(*values)

    head = f"{found['items']} items of {found['documents']} documents, {found['positive']:.0%} positive"
    print(f"{name}: {head}, {found['cached_share']:.0%} cached, {found['seconds']} s")
    for method in ("itemized", "lexical"):
        if found[method]:
            row = found[method]
            print(
                f"  {method:<9} AUC {three(row['auc'])}  at 0.5 {row['at_half'][0]:.3f}"
                f"  fitted {three(row['fitted'])}  ECE {row['ece'][0]:.3f} -> {row['ece_fitted'][0]:.3f}"
            )
    if "joint" in found:
        joint = found["joint"]
        print(
            f"  {'joint':<9} balanced accuracy {joint['balanced_accuracy']:.3f}, "
            f"{joint['called_supported']:.0%} called supported, {joint['failed']} failed"
        )
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="+", help="labelled examples, JSON Lines")
    parser.add_argument("--judge", default="qwen2.5-coder-1.5b", metavar="NAME")
    parser.add_argument("--half", choices=("tune", "held", "all"), default="all", help="documents to use")
    parser.add_argument("--documents", type=int, default=None, metavar="N", help="most documents a file")
    parser.add_argument(
        "--joint",
        action="append",
        default=[],
        metavar="NAME",
        help="a file, less its ending, to ask jointly too",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write a calibration over all files")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(work(arguments, Path(folder)))))


if __name__ == "__main__":
    main()
