"""Files of weights on disk: digests, the manifest of a prepared folder, a full disk.

The digest of a folder is the SHA-256 over one line `<sha256>  <path>\\n` a weight file, sorted by path;
that is `LC_ALL=C sha256sum *.safetensors | sha256sum`. Configuration and tokenizer are verified too, file by
file, but do not count: converting the same weights with another version of Transformers writes its
version into them. Knows nothing of judges, pip, hubs or GGUF.
"""

import errno
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from offline_summ.errors import WeightsError

MANIFEST = "offline-summ-manifest.json"
MANIFEST_FORMAT = 1
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")

_CHUNK = 4 * 1024 * 1024
_THREADS = 4


@dataclass(frozen=True)
class Progress:
    """How far one stage has come.

    Attributes:
        stage: what is being done, such as `"downloading"`.
        done: units finished.
        total: units in all; None while unknown.
        unit: what is counted; None for a stage that is not counted.
    """

    stage: str
    done: int
    total: int | None
    unit: Literal["bytes", "files", "tensors"] | None


OnProgress = Callable[[Progress], None]


class DiskFullError(WeightsError):
    """The disk that holds the weights is full; no other source can help.

    Attributes:
        needed: bytes that the preparation takes, if known.
    """

    def __init__(self, message: str, hint: str, needed: int | None) -> None:
        """Add the bytes needed to the sentence and the hint."""
        super().__init__(message, hint)
        self.needed = needed


@dataclass(frozen=True)
class FileDigest:
    """Size in bytes and SHA-256 of one file."""

    size: int
    sha256: str


def disk_full(home: Path, needed: int | None) -> DiskFullError:
    """Return the error of a full disk, with what is needed and what is free where that is known."""
    try:
        free = f" {_gigabytes(shutil.disk_usage(existing_parent(home)).free)} are free."
    except OSError:
        free = ""
    need = f"About {_gigabytes(needed)} are needed.{free} " if needed else ""
    return DiskFullError(
        f"The disk of '{home}' is full.", f"{need}Make room, or choose another home for the weights.", needed
    )


def is_disk_full(text: str) -> bool:
    """Whether the output of another program says that the disk is full."""
    return any(sign in text for sign in ("No space left on device", "os error 28", "Disk quota exceeded"))


def require_space(home: Path, needed: int) -> None:
    """Raise `DiskFullError` if fewer than `needed` bytes are free on the disk of `home`."""
    if shutil.disk_usage(existing_parent(home)).free < needed:
        raise disk_full(home, needed)


def existing_parent(path: Path) -> Path:
    """Return `path` or its nearest ancestor that exists."""
    return next(each for each in (path, *path.absolute().parents) if each.exists())


@contextmanager
def clear_disk_errors(home: Path, needed: int | None) -> Iterator[None]:
    """Turn every `OSError` of the block into one `WeightsError`, and let a full disk name `home`."""
    try:
        yield
    except DiskFullError as error:
        raise disk_full(home, needed or error.needed) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(home, needed) from error
        where = f" '{error.filename}'" if error.filename else ""
        raise WeightsError(
            f"Cannot write weights below '{home}':{where} {error.strerror or error}.",
            "Choose a home for the weights that you may write to.",
        ) from error


def list_files(folder: Path) -> list[str]:
    """List the files below `folder` as sorted relative paths, hidden ones and the manifest left out."""
    names = []
    for root, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        base = Path(root).relative_to(folder)
        names += [(base / name).as_posix() for name in files if not name.startswith(".")]
    return sorted(name for name in names if name != MANIFEST)


def digest_files(folder: Path, stage: str, on_progress: OnProgress) -> dict[str, FileDigest]:
    """Read every file below `folder` and return its size and SHA-256, several files at a time.

    Raises:
        WeightsError: a file cannot be read.
    """
    names = list_files(folder)
    stop, lock = threading.Event(), threading.Lock()
    done = 0

    def on_bytes(count: int) -> None:
        nonlocal done
        with lock:
            done += count
            on_progress(Progress(stage, done, total, "bytes"))

    try:
        total = sum((folder / name).stat().st_size for name in names)
        with ThreadPoolExecutor(_THREADS) as pool:
            try:
                digests = list(pool.map(lambda name: digest_file(folder / name, on_bytes, stop), names))
            except BaseException:
                stop.set()  # an interrupt does not wait for hundreds of gigabytes
                raise
    except OSError as error:
        raise WeightsError(f"Cannot read '{error.filename}': {error.strerror or error}.") from error
    return dict(zip(names, digests, strict=True))


def digest_file(
    path: Path, on_bytes: Callable[[int], None], stop: threading.Event | None = None
) -> FileDigest:
    """Return size and SHA-256 of one file; `on_bytes` is told of every piece that was read."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while (stop is None or not stop.is_set()) and (chunk := file.read(_CHUNK)):
            digest.update(chunk)
            size += len(chunk)
            on_bytes(len(chunk))
    return FileDigest(size, digest.hexdigest())


def check_safetensors(path: Path) -> None:
    """Check that a safetensors file is as long as its header says, by reading the header alone.

    The format: 8 bytes with the length of the header, the header as JSON with the end of each tensor in the
    bytes that follow.

    Raises:
        WeightsError: the file is cut short, or is something else.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)) if 0 < length <= size - 8 else None
        if not isinstance(header, dict):
            raise ValueError("no header")
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        complete = size == 8 + length + max(ends, default=0)
    except OSError as error:
        raise WeightsError(f"Cannot read '{path}': {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise WeightsError(f"'{path}' is not a safetensors file.", "Copy it from the model again.") from error
    if not complete:
        raise WeightsError(
            f"'{path}' has {size} bytes, which is not what its header says.", "Copy it from the model again."
        )


def folder_digest(files: Mapping[str, FileDigest]) -> str:
    """Return the one digest that identifies the weights; its formula is at the top of this file."""
    weights = [name for name in sorted(files) if name.endswith(WEIGHT_SUFFIXES)]
    lines = "".join(f"{files[name].sha256}  {name}\n" for name in weights)
    return hashlib.sha256(lines.encode()).hexdigest()


def write_manifest(folder: Path, files: Mapping[str, FileDigest], about: Mapping[str, Any]) -> None:
    """Write the manifest of a finished folder and flush folder and files to the disk."""
    content = {
        "format": MANIFEST_FORMAT,
        **about,
        "weights_sha256": folder_digest(files),
        "files": {name: {"size": each.size, "sha256": each.sha256} for name, each in sorted(files.items())},
    }
    (folder / MANIFEST).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    for name in (*files, MANIFEST):
        flush_to_disk(folder / name)
    flush_to_disk(folder)


def read_manifest(folder: Path) -> dict[str, FileDigest] | None:
    """Return the files that the manifest of `folder` promises; None if there is no readable manifest."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if content["format"] != MANIFEST_FORMAT:
            return None
        return {
            name: FileDigest(int(each["size"]), str(each["sha256"]))
            for name, each in content["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def manifest_source(folder: Path) -> Mapping[str, Any]:
    """Return the source that the manifest of `folder` names, as in models.toml; empty if it names none."""
    try:
        source = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["source"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return source if isinstance(source, dict) else {}


def flush_to_disk(path: Path) -> None:
    """Flush a file or a folder to the disk, so that a power cut cannot undo what follows."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
