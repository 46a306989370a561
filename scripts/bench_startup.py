"""Times `offline-summ --help` and `import offline_summ` against `python -c pass`, side by side in one run.

Prints a table and one JSON line: seconds more than an empty interpreter, the fastest of 15 runs each.
"""

import json
import subprocess
import sys
import time

COMMANDS = {
    "pass": ["-c", "pass"],
    "import": ["-c", "import offline_summ"],
    "help": ["-m", "offline_summ", "--help"],
}
RUNS = 15


def main() -> None:
    fastest = dict.fromkeys(COMMANDS, float("inf"))
    for _ in range(RUNS):
        for name, arguments in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
            fastest[name] = min(fastest[name], time.perf_counter() - started)
    print("command   seconds")
    for name, seconds in fastest.items():
        print(f"{name:<9} {seconds:7.3f}")
    more = {f"{name}_extra_s": round(fastest[name] - fastest["pass"], 3) for name in ("import", "help")}
    print(json.dumps(more))


if __name__ == "__main__":
    main()
