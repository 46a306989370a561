"""Kills a run with `kill -9` at random moments, resumes it, and compares with a run that nobody killed.

Each round writes an input with texts of its own, runs it to the end in one go, and once more with kills. The
judge is scripted: its verdicts follow from a digest of what it is asked, so that a mixed-up row shows. The
last line is JSON; `lost`, `doubled` and `different` must be 0.
"""

import argparse
import asyncio
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

NOT_COMPARED = {"seconds", "calls", "tokens"}


def worker(source, output, delay, ordered):
    """Run a batch in this process."""
    from offline_summ import ScriptedEngine, SummarizationScorer
    from offline_summ.batch import BatchInput, run_batch
    from offline_summ.engines.scripted import coverage_reply, judgement_reply

    async def script(request):
        digest = hashlib.sha256(request.messages[-1].content.encode()).digest()
        await asyncio.sleep(delay * digest[0] / 255)
        if request.step == "coverage":
            return coverage_reply([byte % 2 == 0 for byte in digest[:3]])
        claims = [(f"Claim {digest.hex()[:8]} {n}.", digest[n] % 2 == 0) for n in range(1 + digest[3] % 4)]
        return judgement_reply(claims, [f"Question {digest.hex()[:8]} {n}?" for n in range(3)])

    engine = ScriptedEngine(script)
    with SummarizationScorer(engine) as scorer:
        run_batch(scorer, BatchInput(str(source)), output, ordered=ordered)


def rows_of(path):
    """Return the results by row number, without what no two runs share, and how often each row comes."""
    results, counts = {}, Counter()
    for line in path.read_text(encoding="utf-8").splitlines():
        result = json.loads(line)
        for name in NOT_COMPARED:
            result["run"].pop(name)
        number = result["input"]["number"]
        counts[number] += 1
        results[number] = result
    return results, counts


def command(source, output, delay, ordered):
    return [sys.executable, __file__, "--worker", str(source), str(output), str(delay), str(int(ordered))]


def killed_run(arguments, output, limit, chance):
    """Start a run again until it ends by itself; return how often it was killed, and how often midway."""
    kills = midway = 0
    while True:
        process = subprocess.Popen(arguments)
        try:
            # After many kills in a row let it come to its end.
            code = process.wait(timeout=chance.uniform(0.2, limit) * (1 + kills / 8))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            midway += output.exists() and output.stat().st_size > 0
            continue
        if code == 0:
            return kills, midway
        raise SystemExit(f"kill_resume: a run ended with {code}")


def main():
    if sys.argv[1:2] == ["--worker"]:
        source, output, delay, ordered = sys.argv[2:]
        worker(Path(source), Path(output), float(delay), ordered == "1")
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10, metavar="N")
    parser.add_argument("--rows", type=int, default=400, metavar="N", help="rows of each input")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    arguments = parser.parse_args()

    chance = random.Random(arguments.seed)
    found = Counter(lost=0, doubled=0, different=0, kills=0, midway=0)
    for number in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "input.jsonl")
            lines = [
                json.dumps(
                    {"id": f"r{n}", "source": f"Source {n // 4} of {number}.", "summary": f"Text {n}."}
                )
                for n in range(arguments.rows)
            ]
            for broken in range(7, len(lines), 50):
                lines[broken] = '{"id": "broken'
            source.write_text("\n".join(lines) + "\n", encoding="utf-8")
            whole, killed = Path(folder, "whole.jsonl"), Path(folder, "killed.jsonl")
            ordered = number % 2 == 1
            started = time.monotonic()
            subprocess.run(command(source, whole, 0.1, ordered), check=True)
            limit = time.monotonic() - started
            kills, midway = killed_run(command(source, killed, 0.1, ordered), killed, limit, chance)
            expected, _ = rows_of(whole)
            results, counts = rows_of(killed)
            lost = len(expected.keys() - results.keys())
            doubled = sum(count > 1 for count in counts.values())
            different = sum(results[n] != expected[n] for n in results)
            found.update(lost=lost, doubled=doubled, different=different, kills=kills, midway=midway)
            print(
                f"round {number + 1}: {kills} kills, {midway} midway, {len(results)} rows, {lost} lost, ",
                end="",
            )
            print(f"{doubled} doubled, {different} different", flush=True)
    print(json.dumps({"rounds": arguments.rounds, "rows": arguments.rows, **found}))


if __name__ == "__main__":
    main()
