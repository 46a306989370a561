"""What differs between the libraries that hold a judge to a grammar inside vLLM, and their cache on disk.

vLLM's outlines backend computes an index over the whole vocabulary for each grammar, which takes seconds and
is worth keeping; guidance and xgrammar need no cache on disk. What is kept are grammars, never texts. Knows
nothing of prompts and of vLLM itself.
"""

import contextlib
import json
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from offline_summ.errors import JudgeError
from offline_summ.judges import GrammarBackend

# Under guidance a control token is no text. Outlines and xgrammar go by how it is spelt, and would let a
# judge write `<|im_end|>` as one token inside a text.
_KNOWS_CONTROL_TOKENS = frozenset({"guidance"})
# Guidance reads no other tokenizers; xgrammar does not see the spaces in the tokens of others.
_READABLE_DECODERS = frozenset({"ByteLevel", "ByteFallback"})

_CACHE_FILE = "outlines_cache.db"  # the name that vLLM gives it
_MOST_BYTES = 2 * 2**30
_COMPILE_FAILED = "Failed to compile grammar"
_EXCEPTION = re.compile(r"^[\w.]*(?:Error|Exception): (.+)$")
_NOT_IN_VOCABULARY = re.compile(r"incompatible with the regex .* missing tokens", re.DOTALL)


def choose_backend(wanted: GrammarBackend | None, tokenizer: Any) -> GrammarBackend:
    """Return the backend asked for, or else guidance if it can read the tokenizer, or else outlines.

    Raises:
        JudgeError: the backend asked for cannot read the tokenizer.
    """
    decoder = json.loads(tokenizer.backend_tokenizer.to_str())["decoder"] or {"type": "none"}
    kinds = {each["type"] for each in decoder.get("decoders", [decoder])}
    if wanted == "outlines" or kinds & _READABLE_DECODERS:
        return wanted or "guidance"
    if wanted is None:
        return "outlines"
    raise JudgeError(
        f"Grammar backend {wanted!r} cannot read the judge's tokenizer, whose decoder is "
        f"{', '.join(map(repr, sorted(kinds)))}.",
        "Choose 'outlines', or none.",
    )


def barred_tokens(backend: GrammarBackend, tokenizer: Any) -> frozenset[int]:
    """Return the control tokens that the engine has to keep out of texts, because the backend does not."""
    if backend in _KNOWS_CONTROL_TOKENS:
        return frozenset()
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return frozenset(special - {tokenizer.eos_token_id})


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
        except (OSError, sqlite3.Error):
            pass
        self.close()
        return None


def _is_sound(file: Path) -> bool:
    """Whether a file is a whole database.

    Raises:
        sqlite3.OperationalError: that cannot be told, such as while another process holds it.
    """
    try:
        with contextlib.closing(sqlite3.connect(file)) as database:
            return bool(database.execute("PRAGMA quick_check").fetchone() == ("ok",))
    except sqlite3.OperationalError:
        raise
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
        if found and _NOT_IN_VOCABULARY.search(found[1]):
            return "the judge's vocabulary lacks characters that the prompts require in its reply"
        if found:
            return found[1].split(" Pattern: ")[0].rstrip(".")
    return None
