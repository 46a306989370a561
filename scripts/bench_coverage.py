"""Compares coverage with the judgement of people, for questions of the user's own and for drawn questions.

Each summary of a file of labelled examples with key facts (format: README, "Calibrate a judge") is scored
twice on coverage: with its key facts as questions, and with questions drawn from its source. People's
coverage of a summary is the share of its key facts that they found in it. Printed is Spearman's rank
correlation with it, over all summaries and as the mean within a document; beside it what shared word pairs
reach without a judge. The last line is JSON.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path

from bench_verdicts import chosen, shared

AT_ONCE = 16


def spearman(values, people, documents):
    """Rank correlation over all summaries, and the mean of those within a document."""
    from scipy.stats import spearmanr

    by_document = defaultdict(list)
    for pair, document in zip(zip(values, people, strict=True), documents, strict=True):
        by_document[document].append(pair)
    within = [
        float(spearmanr(*zip(*rows, strict=True)).statistic)
        for rows in by_document.values()
        if all(len(set(column)) > 1 for column in zip(*rows, strict=True))
    ]
    return {
        "spearman": round(float(spearmanr(values, people).statistic), 3),
        "within_document": round(statistics.mean(within), 3) if within else None,
        "documents_with_ranks": len(within),
    }


async def scored(judge, examples, drawn):
    """Score each summary's coverage; None in place of a result that failed."""
    from offline_summ import SummarizationOptions, SummarizationScorer

    options = SummarizationOptions(axes="coverage", protocol="itemized", reasons="none", reason="none")
    async with SummarizationScorer(judge, options) as scorer:
        at_once = asyncio.Semaphore(AT_ONCE)

        async def one(example):
            async with at_once:
                questions = None if drawn else [fact.text for fact in example]
                return await scorer.ascore(example[0].source, example[0].summary, questions=questions)

        return await asyncio.gather(*map(one, examples))


def expected(result):
    """Mean probability of a yes: coverage without thresholds."""
    verdicts = result.analyze_step_result.coverage
    return statistics.mean(verdict.probability for verdict in verdicts) if verdicts else 0.0


def report(examples, results, seconds):
    from sklearn.metrics import roc_auc_score

    kept = [(e, r) for e, r in zip(examples, results, strict=True) if r.coverage_score is not None]
    people = [statistics.mean(fact.label for fact in example) for example, _ in kept]
    documents = [example[0].document for example, _ in kept]
    prompt = sum(result.run.tokens.prompt for _, result in kept)
    verdicts = [result.analyze_step_result.coverage for _, result in kept]
    found = {
        "summaries": len(kept),
        "failed": len(examples) - len(kept),
        "coverage": spearman([result.coverage_score for _, result in kept], people, documents),
        "mean_probability": spearman([expected(result) for _, result in kept], people, documents),
        "questions": round(statistics.mean(map(len, verdicts)), 1),
        "prompt_tokens": prompt,
        "cached_share": round(sum(result.run.tokens.cached for _, result in kept) / prompt, 3),
        "seconds": round(seconds),
    }
    labels = [fact.label for example, _ in kept for fact in example]
    if [v.question for own in verdicts for v in own] == [
        fact.text for example, _ in kept for fact in example
    ]:
        probabilities = [verdict.probability for own in verdicts for verdict in own]
        found["auc"] = round(float(roc_auc_score(labels, probabilities)), 3)
    return found


def lexical(examples):
    people = [statistics.mean(fact.label for fact in example) for example in examples]
    documents = [example[0].document for example in examples]
    facts = [statistics.mean(shared(f.text, example[0].summary) for f in example) for example in examples]
    source = [shared(example[0].source, example[0].summary) for example in examples]
    return {
        "word pairs of the key facts": spearman(facts, people, documents),
        "word pairs of the source": spearman(source, people, documents),
    }


def show(name, row):
    extra = "".join(
        f"  {key} {row[key]}" for key in ("auc", "questions", "cached_share", "failed") if key in row
    )
    for method in ("coverage", "mean_probability"):
        print(
            f"{name:<8} {method:<17} Spearman {row[method]['spearman']:.3f}, "
            f"within a document {row[method]['within_document']}{extra}"
        )
        extra = ""


def main():
    from offline_summ.labelled import read_labelled

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="labelled examples with key facts, JSON Lines")
    parser.add_argument("--judge", default="qwen2.5-coder-1.5b", metavar="NAME")
    parser.add_argument("--half", choices=("tune", "held", "all"), default="all", help="documents to use")
    parser.add_argument("--documents", type=int, default=None, metavar="N", help="most documents")
    arguments = parser.parse_args()

    rows = defaultdict(list)
    for item in chosen(read_labelled([arguments.data]), arguments.half):
        if item.axis == "coverage":
            rows[item.row].append(item)
    names = sorted({own[0].document for own in rows.values()})[: arguments.documents]
    examples = sorted(
        (own for own in rows.values() if own[0].document in names), key=lambda own: own[0].document
    )
    print(f"{len(examples)} summaries of {len(names)} documents", flush=True)
    outcome = {"lexical": lexical(examples)}
    for name, row in outcome["lexical"].items():
        print(f"no judge, {name}: Spearman {row['spearman']}, within a document {row['within_document']}")
    for name, drawn in (("given", False), ("drawn", True)):
        started = time.monotonic()
        results = asyncio.run(scored(arguments.judge, examples, drawn))
        outcome[name] = report(examples, results, time.monotonic() - started)
        show(name, outcome[name])
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
