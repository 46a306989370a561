"""What a run costs beside the judge: a scripted judge that replies at once, and one with a fixed delay.

First a file of many rows is scored with a judge that needs no time: examples a second, and how far memory has
grown from row 10,000 to the end. Then rows are scored with a judge that takes a fixed time: how near the run
comes to the most that its number of rows at once allows. The last line is JSON.
"""

import argparse
import asyncio
import json
import os
import tempfile
from pathlib import Path

FIRST_ROWS = 10_000


def resident():
    """Return the resident memory of this process, bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Judge:
    """A scripted engine that keeps no requests."""

    def __init__(self, delay):
        from offline_summ.engines.base import Capacity, Completion, EngineRecord
        from offline_summ.engines.scripted import coverage_reply, judgement_reply

        claims = [("The mill was rebuilt.", True), ("It burned down.", False)]
        self._judgement = Completion(judgement_reply(claims, ["Was the mill rebuilt?", "Did it burn down?"]))
        self._coverage = Completion(coverage_reply([True, False]))
        self._delay = delay
        self.record = EngineRecord(judge="scripted", engine="scripted")
        self.context_length, self.bounds_texts, self.capacity = None, False, Capacity(requests=64)

    async def start(self):
        pass

    async def warm_up(self, replies):
        pass

    async def generate(self, request):
        if self._delay:
            await asyncio.sleep(self._delay)
        return self._coverage if request.step == "coverage" else self._judgement

    async def close(self):
        pass

    def kill(self):
        pass


def write_rows(path, count):
    text = "The mill in Linz was rebuilt in eleven months. It now makes paper from recycled fibre. " * 10
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            row = {"id": f"row-{number}", "source": f"Report {number}. {text}", "summary": f"Mill {number}."}
            file.write(json.dumps(row) + "\n")


def main():
    from offline_summ import SummarizationScorer
    from offline_summ.batch import BatchInput, run_batch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000, metavar="N")
    parser.add_argument("--delay", type=float, default=0.2, metavar="S", help="of each reply, second part")
    parser.add_argument("--cores", type=int, default=1, metavar="N", help="cores to run on")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])

    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "rows.jsonl"), Path(folder, "results.jsonl")
        write_rows(source, arguments.rows)
        marks = []

        def mark(totals):
            if not marks and totals.rows >= FIRST_ROWS:
                marks.append(resident())

        with SummarizationScorer(Judge(0)) as scorer:
            outcome = run_batch(scorer, BatchInput(str(source)), output, on_written=mark)
        rate = outcome.totals.rows / outcome.seconds
        growth = (resident() - marks[0]) / 2**20 if marks else None
        lines = sum(1 for _ in output.open("rb"))
        print(f"no delay: {lines} rows in {outcome.seconds:.1f} s, {rate:.0f} a second", flush=True)
        if growth is not None:
            print(f"memory from row {FIRST_ROWS} to the end: {growth:+.1f} MiB", flush=True)

        at_once = 80  # a quarter more than the 64 requests of the judge
        few, slow = Path(folder, "few.jsonl"), Path(folder, "slow.jsonl")
        write_rows(few, 40 * at_once)
        with SummarizationScorer(Judge(arguments.delay)) as scorer:
            delayed = run_batch(scorer, BatchInput(str(few)), slow)
        most = at_once / (2 * arguments.delay)
        reached = delayed.totals.rows / delayed.seconds
        print(f"{arguments.delay} s a reply: {reached:.1f} rows a second, {reached / most:.3f} of the most")
    print(
        json.dumps(
            {
                "rows": lines,
                "examples_per_s": round(rate, 1),
                "rss_growth_mib": None if growth is None else round(growth, 1),
                "of_concurrency_limit": round(reached / most, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
