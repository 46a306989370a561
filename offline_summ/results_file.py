"""The results of a run on disk: one JSON line a row, whole, and safe before it is reported.

A run that was killed leaves at most a half line at the end, which the next one takes away. Knows nothing of
judges and of how rows are read.
"""

import contextlib
import fcntl
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from offline_summ.errors import InputError, JudgeError, UsageError
from offline_summ.schemas import SummarizationResult

_MODE = 0o600
_BEGINNING = b'{"id":'
_AFTER_ID = b',"status":'
_ID = re.compile(rb'\{"id":(?:null|"(?:[^"\\]|\\.)*")')
_HALF_ID = re.compile(rb'\{"id":(?:nu?l?|"(?:[^"\\]|\\.)*\\?)')
_BLOCK = 2**16


class ResultsFile:
    """Appends results to a file that no other run writes to.

    Args:
        path: the file; created if it does not exist, and readable by its owner only.

    Raises:
        UsageError: another run writes to it, or it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        """Open and lock the file."""
        self.path = path
        self._file = _locked(path)

    def end_of_lines(self) -> int:
        """Return where the whole lines end, in bytes; what follows is half a result, or nothing.

        Raises:
            InputError: the last line is no beginning of a result.
        """
        end = self._file.seek(0, os.SEEK_END)
        position, tail = end, b""
        while position and b"\n" not in tail:
            size = min(_BLOCK, position)
            position -= size
            self._file.seek(position)
            tail = self._file.read(size)
        kept = position + tail.rfind(b"\n") + 1
        self._file.seek(kept)
        begun = self._file.read(_BLOCK).rstrip(b"\0")  # what a power cut leaves may be zeros
        if not begins_a_result(begun):
            raise InputError(
                f"{str(self.path)!r} ends with something else than a result.", "Name another file."
            )
        return kept

    def cut_half_line(self) -> None:
        """Take away what a run that was killed left of its last line.

        Raises:
            InputError: the last line is no beginning of a result.
            JudgeError: the file cannot be written.
        """
        end = self.end_of_lines()
        try:
            self._file.truncate(end)
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def append(self, results: Sequence[SummarizationResult]) -> None:
        """Write whole lines, and return when they are on disk.

        Raises:
            JudgeError: they cannot be written; what was written before stays as it is.
        """
        lines = b"".join(result.model_dump_json().encode() + b"\n" for result in results)
        before = self._file.seek(0, os.SEEK_END)
        try:
            view = memoryview(lines)
            while view:
                view = view[self._file.write(view) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):  # else the next run takes the half line away
                self._file.truncate(before)
            raise _unwritable(self.path, error) from None

    def rewrite(self, keep: Callable[[SummarizationResult], bool]) -> None:
        """Replace the file, in one step, by one with some of its results only."""
        place = self.path.resolve()  # where a link leads, so that it stays a link
        try:
            handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}-", suffix=".part")
            try:
                with os.fdopen(handle, "wb") as part:
                    for result in read_results(self.path):
                        if keep(result):
                            part.write(result.model_dump_json().encode() + b"\n")
                    part.flush()
                    os.fsync(part.fileno())
                os.replace(name, place)
                _sync_folder(place.parent)
            finally:
                Path(name).unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(self.path, error) from None
        self.close()
        self._file = _locked(self.path)

    def close(self) -> None:
        """Close the file and let others write to it."""
        self._file.close()

    def __enter__(self) -> "ResultsFile":
        """Return the file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()


def begins_a_result(text: bytes) -> bool:
    """Return whether a text may be a line of results that was cut, as far as it reaches.

    Args:
        text: what there is of the line, without the zeros that a power cut may leave at its end.
    """
    whole_id = _ID.match(text)
    if whole_id is None:
        return _BEGINNING.startswith(text) or _HALF_ID.fullmatch(text) is not None
    rest = text[whole_id.end() :]
    return rest.startswith(_AFTER_ID) or _AFTER_ID.startswith(rest)


def _locked(path: Path) -> IO[bytes]:
    while True:
        file = _opened_and_locked(path)
        try:
            opened, there = os.fstat(file.fileno()), path.stat()
        except FileNotFoundError:
            there = None
        if there is not None and os.path.samestat(opened, there):
            break
        file.close()  # another run replaced it before it was locked
    if not opened.st_size and opened.st_mode & 0o077:
        os.fchmod(file.fileno(), _MODE)
    return file


def _opened_and_locked(path: Path) -> IO[bytes]:
    if path.exists() and not path.is_file():
        raise UsageError(f"{str(path)!r} is no regular file.", "Write elsewhere.")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, _MODE)
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be written: {error.strerror}.", "Write elsewhere.") from None
    file = os.fdopen(descriptor, "r+b", 0)
    _sync_folder(path.resolve().parent)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UsageError(
            f"Another run writes to {str(path)!r}.", "Wait for it, or write elsewhere."
        ) from None
    return file


def read_results(path: Path, *, end: int | None = None) -> Iterator[SummarizationResult]:
    """Yield the results of a file that a run wrote, in the order of its lines.

    Args:
        path: the file.
        end: how far to read, in bytes; None is to its end.

    Raises:
        InputError: it cannot be read, or a line is no result.
    """
    with _opened(path) as file:
        offset = 0
        for number, line in enumerate(file, start=1):
            if offset == end:
                return
            offset += len(line)
            yield _result(line, number, path)


def results_in_order(path: Path) -> Iterator[SummarizationResult]:
    """Yield the results of a file in the order of the input; only their places are held in memory.

    Raises:
        InputError: it cannot be read, or a line is no result of a run.
    """
    places = places_of_rows(path)
    for number in sorted(places):
        yield read_result_at(path, places[number])


def places_of_rows(path: Path) -> dict[int, int]:
    """Return the number of each row in a file, and where its result begins, in bytes.

    Raises:
        InputError: it cannot be read, or a line is no result of a run.
    """
    places: dict[int, int] = {}
    with _opened(path) as file:
        offset = 0
        for number, line in enumerate(file, start=1):
            try:
                places[json.loads(line)["input"]["number"]] = offset
            except (ValueError, RecursionError, TypeError, KeyError):
                raise _no_result(path, number) from None
            offset += len(line)
    return places


def read_result_at(path: Path, offset: int) -> SummarizationResult:
    """Return the result that begins at `offset`.

    Raises:
        InputError: it cannot be read, or there is none.
    """
    with _opened(path) as file:
        file.seek(offset)
        return _result(file.readline(), 1, path)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}.", "Check the path.") from None


def _result(line: bytes, number: int, path: Path) -> SummarizationResult:
    try:
        return SummarizationResult.model_validate(json.loads(line.decode("utf-8")))
    except (ValidationError, ValueError, RecursionError):
        raise _no_result(path, number) from None


def _no_result(path: Path, number: int) -> InputError:
    return InputError(
        f"{str(path)!r}, line {number}, is no result of this version of offline-summ.",
        "Name another file for the results.",
    )


def _sync_folder(folder: Path) -> None:
    """Put the name of a new file on disk, where the file system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unwritable(path: Path, error: OSError) -> JudgeError:
    return JudgeError(
        f"{str(path)!r} cannot be written: {error.strerror}.",
        "All rows up to here are kept; make room and run the same command again.",
    )
