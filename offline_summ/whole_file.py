"""Writes a small file whole or not at all. Knows nothing of what is in it."""

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a text that only its owner may read; a file of that name is replaced whole or stays as it was.

    Args:
        path: the file; a device or a pipe is written to as it is.
        text: what it holds afterwards, in UTF-8.

    Raises:
        OSError: it cannot be written.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    place = path.resolve()
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}-", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, place)
    finally:
        Path(name).unlink(missing_ok=True)
