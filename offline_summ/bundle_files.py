"""The folder of a bundle: what is in it already, what belongs there, and its list of digests.

While a bundle is made, digests of finished files are kept in a ledger, so that a run that was stopped goes
on from there. `SHA256SUMS` appears as the last step, and a folder without it is no bundle. Knows nothing of
wheels and judges.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from offline_summ.errors import BundleError
from offline_summ.weights_files import FileDigest, digest_file, flush_to_disk

SUMS = "SHA256SUMS"
ABOUT = "bundle.txt"
VERSIONS = "versions.txt"
INSTALLER = "install.sh"
FOLDERS = ("examples", "judges", "models", "wheels")

_LEDGER = ".digests"
_ARRIVING = ".arriving"
_LOCK = ".lock"
_OWN = {SUMS, ABOUT, VERSIONS, INSTALLER, *FOLDERS, _LEDGER, _ARRIVING, _LOCK}


@contextmanager
def opened_folder(folder: Path) -> Iterator[dict[str, str]]:
    """Open the folder of a bundle for one process, and yield the digests that an earlier run left.

    Raises:
        BundleError: the folder holds other files, another process writes it, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        foreign = sorted(each.name for each in folder.iterdir() if each.name not in _OWN)
    except OSError as error:
        raise BundleError(
            f"The folder {str(folder)!r} cannot be written: {error.strerror}.", "Give another folder."
        ) from error
    if foreign:
        raise BundleError(
            f"The folder {str(folder)!r} holds {foreign[0]!r}, which belongs to no bundle.",
            "Give an empty folder, or one that an earlier run began.",
        )
    lock = FileLock(folder / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BundleError(
            f"Another process is writing the bundle {str(folder)!r}.", "Wait for it, or give another folder."
        ) from None
    try:
        if (folder / SUMS).exists():
            os.replace(folder / SUMS, folder / _LEDGER)
        yield _read_ledger(folder / _LEDGER)
    finally:
        lock.release()
        (folder / _LOCK).unlink(missing_ok=True)


def arriving(folder: Path) -> Path:
    """Return an empty folder for files on their way, on the disk of the bundle."""
    scratch = folder / _ARRIVING
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    return scratch


def keeps(folder: Path, name: str, digest: str | None) -> bool:
    """Whether the file `name` is there with this digest; None, an unknown digest, is never kept."""
    path = folder / name
    return digest is not None and path.is_file() and digest_file(path, lambda _: None).sha256 == digest


def place(folder: Path, made: Path, name: str, expected: FileDigest | None = None) -> str:
    """Move a finished file to its name in the bundle, note its digest in the ledger, and return it.

    Raises:
        BundleError: the file has another digest than expected.
    """
    digest = digest_file(made, lambda _: None).sha256
    if expected is not None and digest != expected.sha256:
        made.unlink()
        raise BundleError(
            f"The copy of {name!r} has SHA-256 {digest}, expected {expected.sha256}.",
            "Check the disks, and run the command again.",
        )
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    flush_to_disk(made)
    os.replace(made, target)
    flush_to_disk(target.parent)
    note(folder, name, digest)
    return digest


def note(folder: Path, name: str, digest: str) -> None:
    """Add a line to the ledger."""
    with (folder / _LEDGER).open("a", encoding="utf-8") as ledger:
        ledger.write(f"{digest}  {name}\n")
        ledger.flush()
        os.fsync(ledger.fileno())


def place_text(folder: Path, name: str, text: str, mode: int = 0o644) -> str:
    """Write a small file into the bundle whole, and return its digest."""
    made = folder / _ARRIVING / Path(name).name
    made.parent.mkdir(exist_ok=True)
    made.write_text(text, encoding="utf-8")
    made.chmod(mode)
    return place(folder, made, name)


def finish(folder: Path, digests: Mapping[str, str]) -> str:
    """Remove what an earlier run left and this one did not want, write SHA256SUMS, and return its digest."""
    for top in FOLDERS:
        for root, _, names in os.walk(folder / top, topdown=False):
            for name in names:
                path = Path(root) / name
                if path.relative_to(folder).as_posix() not in digests:
                    path.unlink()
            if not os.listdir(root):
                os.rmdir(root)
    lines = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    made = folder / _ARRIVING / SUMS
    made.parent.mkdir(exist_ok=True)
    made.write_text(lines, encoding="utf-8")
    flush_to_disk(made)
    digest = digest_file(made, lambda _: None).sha256
    os.replace(made, folder / SUMS)
    shutil.rmtree(folder / _ARRIVING)
    (folder / _LEDGER).unlink(missing_ok=True)
    flush_to_disk(folder)
    return digest


def _read_ledger(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    return {line[66:]: line[:64] for line in lines if line[64:66] == "  "}
