"""What differs between the libraries that hold a judge to a grammar inside vLLM, and their cache on disk.

vLLM's outlines backend computes an index over the whole vocabulary for each grammar, which takes seconds and
is worth keeping; guidance and xgrammar need no cache on disk. What is kept are grammars, never texts. Knows
nothing of prompts and of vLLM itself.
"""

import contextlib
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

from offline_summ.judges import GrammarBackend

BOUNDS_TEXTS: dict[GrammarBackend, bool] = {"guidance": True, "outlines": False, "xgrammar": False}
"""Whether a backend is given texts with a limit of characters. Outlines cannot compile them, xgrammar takes a
fifth of a second a token for them (docs/experiments.md)."""

# Tokens that no text may hold but that spell ordinary characters: outlines and xgrammar would let a judge
# write `<|im_end|>` as a token inside a text.
BARS_CONTROL_TOKENS: dict[GrammarBackend, bool] = {"guidance": True, "outlines": False, "xgrammar": False}

_CACHE_FILE = "outlines_cache.db"  # the name that vLLM gives it
_MOST_BYTES = 2 * 2**30
_COMPILE_FAILED = "Failed to compile grammar"
_EXCEPTION = re.compile(r"^[\w.]*(?:Error|Exception): (.+)$")


class GrammarCache:
    """The folder in which compiled grammars outlive a run.

    A folder that can only be read is copied to a temporary one, so that what it holds is still of use. Where
    neither is possible there is no cache, and grammars are compiled in every run.

    Args:
        folder: the folder; it may be missing.
    """

    def __init__(self, folder: Path) -> None:
        """Touch nothing yet."""
        self._folder = folder
        self._copy: Path | None = None

    def open(self, environ: MutableMapping[str, str]) -> None:
        """Tell vLLM, through its environment, where the cache is, or that there is none."""
        place = self._writable() or self._copied()
        environ["VLLM_V1_USE_OUTLINES_CACHE"] = "1" if place else "0"
        if place:
            environ["OUTLINES_CACHE_DIR"] = str(place)

    def close(self) -> None:
        """Remove the temporary copy, if there is one."""
        if self._copy is not None:
            shutil.rmtree(self._copy, ignore_errors=True)
            self._copy = None

    def _writable(self) -> Path | None:
        file = self._folder / _CACHE_FILE
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if file.exists() and (file.stat().st_size > _MOST_BYTES or not _is_sound(file)):
                for each in self._folder.glob(f"{_CACHE_FILE}*"):
                    each.unlink()
            with contextlib.closing(sqlite3.connect(file)) as database:
                database.execute("CREATE TABLE IF NOT EXISTS writable (answer TEXT)")
                database.commit()
        except (OSError, sqlite3.Error):
            return None
        return self._folder

    def _copied(self) -> Path | None:
        file = self._folder / _CACHE_FILE
        try:
            if not file.is_file():
                return None
            self._copy = Path(tempfile.mkdtemp(prefix="offline-summ-grammars-"))
            for each in (file, file.with_name(f"{_CACHE_FILE}-wal")):
                if each.exists():
                    shutil.copyfile(each, self._copy / each.name)
            if _is_sound(self._copy / _CACHE_FILE):
                return self._copy
        except OSError:
            pass
        self.close()
        return None


def _is_sound(file: Path) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(file)) as database:
            return bool(database.execute("PRAGMA quick_check").fetchone() == ("ok",))
    except sqlite3.DatabaseError:
        return False


def compile_failure(log: Path, start: int) -> str | None:
    """Return why a grammar could not be compiled, as vLLM's log says it.

    Args:
        log: the log.
        start: byte from which on to look.

    Returns:
        One line without the grammar itself, or None if the log says nothing of it.
    """
    with log.open("rb") as stream:
        stream.seek(start, os.SEEK_SET)
        lines = stream.read().decode("utf-8", "replace").splitlines()
    failed = [number for number, line in enumerate(lines) if _COMPILE_FAILED in line]
    for line in lines[failed[-1] :] if failed else []:
        found = _EXCEPTION.match(line)
        if found:
            return found[1].split(" Pattern: ")[0].rstrip(".")
    return None
