"""Scores every pair of examples/ with one judge that is loaded once, and prints a table."""

import asyncio
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from offline_summ import SummarizationScorer

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PAIRS = (
    ("company/source.txt", "company/good.txt"),
    ("company/source.txt", "company/distorted.txt"),
    ("company/source.txt", "company/incomplete.txt"),
    ("japanese/source.txt", "japanese/summary.txt"),
    ("chinese/source.txt", "chinese/summary.txt"),
)


async def main(judge: str | None) -> int:
    texts = [[(EXAMPLES / name).read_text(encoding="utf-8") for name in pair] for pair in PAIRS]
    async with SummarizationScorer(judge) as scorer:
        results = await asyncio.gather(*(scorer.ascore(source, summary) for source, summary in texts))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("summary", "score", "alignment", "coverage", "decides", "claims", "questions", "seconds"):
        table.add_column(column, no_wrap=True)
    for (_, name), result in zip(PAIRS, results, strict=True):
        if result.failure is not None:
            table.add_row(name, "failed", result.failure.kind)
            continue
        table.add_row(
            name,
            f"{result.score:.2f}",
            f"{result.alignment_score:.2f}",
            f"{result.coverage_score:.2f}",
            result.deciding_axis,
            str(len(result.preprocess_step_result.alignment)),
            str(len(result.analyze_step_result.coverage)),
            f"{result.run.seconds:.0f}",
        )
    Console(highlight=False, width=100).print(table)
    print(f"{sum(result.status == 'scored' for result in results)} of {len(results)} scored")
    return 0 if all(result.status == "scored" for result in results) else 4


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None)))
