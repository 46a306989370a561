"""What `check_airgap.sh` cannot say in shell: the rows that it scores, and what its runs tried and found.

Reads the lines that strace wrote of connect, sendto, sendmsg and sendmmsg, and counts those that name an
address outside this machine, or a resolver on it.
"""

import json
import re
import sys
from ipaddress import ip_address
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
INTERNET = re.compile(r'inet_addr\("([^"]*)"\)|inet_pton\(AF_INET6, "([^"]*)"')
RESOLVER = re.compile(r'sun_path=@?"[^"]*(?:resolve|Resolve|dnsmasq|unbound)[^"]*"')


def rows():
    source = (EXAMPLES / "company/source.txt").read_text(encoding="utf-8")
    for name in ("good", "distorted"):
        summary = (EXAMPLES / f"company/{name}.txt").read_text(encoding="utf-8")
        yield {"id": name, "source": source, "summary": summary}


def is_egress(line):
    """Return whether a line of strace names an address outside this machine."""
    addresses = [ip_address(first or second) for first, second in INTERNET.findall(line)]
    outside = [a for a in addresses if not (a.is_loopback or a.is_unspecified)]
    return bool(outside) or RESOLVER.search(line) is not None


def figures(result):
    """Return what must be the same in two runs: everything but the time that it took, and the network."""
    run = {key: result["run"][key] for key in ("judge", "weights_sha256", "prompts_sha256", "calls")}
    return {**{key: value for key, value in result.items() if key != "run"}, "run": run}


def report(folder):
    lines = (folder / "trace").read_text(errors="replace").splitlines()
    if not any("connect(" in line or "sendto(" in line for line in lines):
        sys.exit("check_airgap.sh: strace saw no call, not even within the machine: this proves nothing.")
    attempts = [line for line in lines if is_egress(line)]
    found, networks = {}, {}
    for name in ("open", "alone"):
        results = [json.loads((folder / f"{name}.score.json").read_text())]
        batch = map(json.loads, (folder / f"{name}.batch.jsonl").read_text().splitlines())
        results += sorted(batch, key=lambda result: result["input"]["number"])
        found[name] = [figures(result) for result in results]
        networks[name] = sorted({result["run"]["network"] for result in results})
    same = found["open"] == found["alone"]
    for line in attempts[:20]:
        print(line, file=sys.stderr)
    print(
        json.dumps(
            {
                "egress_attempts": len(attempts),
                "calls_traced": len(lines),
                "same_scores": same,
                "scores": [result["score"] for result in found["open"]],
                "network": networks,
            }
        )
    )
    return int(bool(attempts) or not same)


def main():
    if sys.argv[1:2] == ["rows"]:
        for row in rows():
            print(json.dumps(row))
    elif sys.argv[1:2] == ["report"] and len(sys.argv) == 3:
        sys.exit(report(Path(sys.argv[2])))
    else:
        sys.exit("egress.py is run by check_airgap.sh.")


if __name__ == "__main__":
    main()
