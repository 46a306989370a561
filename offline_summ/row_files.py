"""Reads the rows of an input, one after the other: JSON Lines, CSV, Parquet, or a folder of documents.

Rows stream: no more of a file is in memory than the row being read. What is wrong with a row is the row's
problem, and reading goes on; an error is raised only for what concerns the whole input. Knows nothing of
scoring.
"""

import codecs
import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, get_args

from offline_summ.documents import read_document
from offline_summ.errors import InputError, UsageError
from offline_summ.rows import Columns, Row, refuse_missing, row_of

RowFormat = Literal["jsonl", "csv", "tsv", "parquet"]

STDIN = "-"
_ENDINGS: dict[str, RowFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
_COMPRESSED = (".gz", ".zst")
_LONGEST_LINE = 64 * 2**20
_PARQUET_ROWS = 64
_SOURCE = "source"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SEMICOLON = ";"


def read_rows(name: str, *, format: RowFormat | None = None, columns: Columns | None = None) -> Iterator[Row]:
    """Yield the rows of an input.

    Args:
        name: a file, a folder, or "-" for standard input. `.gz` and `.zst` are decompressed. In a folder,
            each `NAME.summary.EXT` is scored against `NAME.source.EXT`; in a folder, or one inside it, that
            holds a file `source.EXT`, every other file is a summary of that source. The id of such a row is
            the path of its summary.
        format: of the file; None goes by its ending, and standard input is "jsonl".
        columns: names of the columns.

    Yields:
        Rows in the order of the input. A row with the id of an earlier one has a problem.

    Raises:
        InputError: the input cannot be opened, or has no such column.
        UsageError: its format is unknown, or what reads it is not installed.
    """
    chosen = columns or Columns()
    if name != STDIN and Path(name).is_dir():
        if format is not None:
            raise UsageError(f"{name!r} is a folder, which has no format {format!r}.", "Leave it out.")
        return _with_unique_ids(_folder_rows(Path(name)))
    kind = format or _format_of(name)
    reader: Callable[[], Iterator[Row]] = {
        "jsonl": lambda: _json_rows(name, chosen),
        "csv": lambda: _table_rows(name, chosen, ","),
        "tsv": lambda: _table_rows(name, chosen, "\t"),
        "parquet": lambda: _parquet_rows(name, chosen),
    }[kind]
    return _with_unique_ids(reader())


def _format_of(name: str) -> RowFormat:
    if name == STDIN:
        return "jsonl"
    path = Path(name)
    bare = path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path
    found = _ENDINGS.get(bare.suffix.lower())
    if found is None:
        if not path.exists():
            raise InputError(f"{name!r} does not exist.", "Check the path.")
        raise UsageError(
            f"{name!r} has an ending that says nothing of its format.",
            f"Give --format, one of {', '.join(get_args(RowFormat))}.",
        )
    return found


def _with_unique_ids(rows: Iterator[Row]) -> Iterator[Row]:
    """Refuse a second row of an id: results of one id could not be told apart."""
    seen: set[int] = set()
    for row in rows:
        if row.id is None:
            yield row
            continue
        short = hash(row.id)
        if short in seen:
            yield Row(row.number, row.id, problem=f"Its id {row.id[:80]!r} is that of an earlier row.")
        else:
            seen.add(short)
            yield row


@contextmanager
def opened(name: str) -> Iterator[IO[bytes]]:
    """Open an input as a stream of bytes, decompressed.

    Args:
        name: a file, whose ending says how it is compressed, or "-" for standard input.

    Raises:
        InputError: it cannot be opened.
        UsageError: what decompresses it is not installed.
    """
    if name == STDIN:
        if sys.stdin is None:
            raise InputError("Standard input is closed.", "Redirect a file into it, or name the file.")
        yield sys.stdin.buffer
        return
    path = Path(name)
    try:
        with path.open("rb") as file:
            if path.suffix.lower() == ".gz":
                yield gzip.GzipFile(fileobj=file)  # type: ignore[misc]
            elif path.suffix.lower() == ".zst":
                yield _zstd(file, name)
            else:
                yield file
    except FileNotFoundError:
        raise InputError(f"{name!r} does not exist.", "Check the path.") from None
    except PermissionError:
        raise InputError(f"{name!r} may not be read.", "Check its permissions.") from None
    except OSError as error:
        if error.filename is None:
            raise
        raise InputError(f"{name!r} cannot be read: {error.strerror}.", "Check the path.") from None


def _zstd(file: IO[bytes], name: str) -> IO[bytes]:
    try:
        from backports import zstd
    except ImportError as error:
        raise _not_installed(name, "backports.zstd") from error
    return zstd.ZstdFile(file)  # type: ignore[return-value]


def _not_installed(name: str, package: str) -> UsageError:
    return UsageError(
        f"Reading {name!r} needs {package}, which is not installed.",
        "Install it with: pip install 'offline-summ[tables]'",
    )


def _damage() -> tuple[type[Exception], ...]:
    """Return what a damaged compressed file raises while it is read."""
    errors: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, zlib.error)
    if "backports.zstd" in sys.modules:
        errors += (sys.modules["backports.zstd"].ZstdError,)
    return errors


_BREAKS_OFF = "The input is damaged here and cannot be read any further."


def _json_rows(name: str, columns: Columns) -> Iterator[Row]:
    number = 0
    with opened(name) as file:
        try:
            while line := file.readline(_LONGEST_LINE):
                number += 1
                if not line.endswith(b"\n") and len(line) >= _LONGEST_LINE:
                    while (rest := file.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
                        pass
                    yield Row(number, problem=f"Its line is longer than {_LONGEST_LINE // 2**20} MiB.")
                    continue
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                    _refuse_other_json(line, name)
                line = line.rstrip(b"\r\n")
                if line.strip():
                    yield _json_row(number, line, columns)
        except _damage():
            yield Row(number + 1, problem=_BREAKS_OFF)


def _refuse_other_json(line: bytes, name: str) -> None:
    """Refuse by its first line what would only give one failure after the other."""
    if line.startswith(_UTF_16):
        raise InputError(f"{name!r} is UTF-16 text.", "Convert it to UTF-8.")
    if line.strip() == b"[" or line.startswith(b"[{"):
        raise InputError(
            f"{name!r} is one JSON array, not JSON Lines.",
            "Write one object a line, for example with: jq -c '.[]' OLD > NEW",
        )
    if line.strip() == b"{":
        raise InputError(
            f"{name!r} is JSON over several lines, not JSON Lines.",
            "Write one object a line, for example with: jq -c . OLD > NEW",
        )


def _json_row(number: int, line: bytes, columns: Columns) -> Row:
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Row(number, problem=f"Its line is not UTF-8: invalid byte at offset {error.start}.")
    except json.JSONDecodeError as error:
        what = error.msg.lower().removesuffix(" at")
        return Row(number, problem=f"Its line is not JSON: {what} in column {error.colno}.")
    except (RecursionError, ValueError):
        return Row(number, problem="Its line is JSON that is nested too deep or holds a number too long.")
    return row_of(number, record, columns)


def _table_rows(name: str, columns: Columns, delimiter: str) -> Iterator[Row]:
    # A setting of the process, which other users of the module may have raised further.
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_LINE))
    number = 0
    with opened(name) as file:
        # Bytes that are not UTF-8 become half characters, which are told from text below.
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
        header, delimiter = _header(text, columns, delimiter, name)
        records = csv.reader(text, delimiter=delimiter, strict=True)
        while True:
            number += 1
            try:
                record = next(records)
            except StopIteration:
                return
            except csv.Error as error:
                yield Row(number, problem=_table_problem(error))
                continue
            except _damage():
                yield Row(number, problem=_BREAKS_OFF)
                return
            if not record:
                number -= 1
            elif len(record) != len(header):
                problem = f"It has {len(record)} columns, but the first line has {len(header)}."
                yield Row(number, problem=problem)
            elif any("\udc80" <= character <= "\udcff" for value in record for character in value):
                yield Row(number, problem="It holds bytes that are not UTF-8.")
            else:
                yield row_of(number, dict(zip(header, record, strict=True)), columns)


def _header(text: io.TextIOWrapper, columns: Columns, delimiter: str, name: str) -> tuple[list[str], str]:
    """Return the names of the columns, and what separates them: many spreadsheets write semicolons."""
    try:
        line = text.readline(_LONGEST_LINE)
        while line and not line.strip():
            line = text.readline(_LONGEST_LINE)
    except _damage():
        raise InputError(f"{name!r} is damaged.", "Compress or export it again.") from None
    if not line:
        raise InputError(f"{name!r} is empty.", "Its first line must hold the names of the columns.")
    if line.startswith("\udcff\udcfe") or line.startswith("\udcfe\udcff"):
        raise InputError(f"{name!r} is UTF-16 text.", "Convert it to UTF-8.")
    found: list[str] = []
    for each in dict.fromkeys((delimiter, _SEMICOLON if delimiter == "," else delimiter)):
        try:
            header = next(csv.reader([line], delimiter=each, strict=True))
        except csv.Error as error:
            raise InputError(
                f"{name!r} has a first line that is no header: {error}.", "Correct it."
            ) from None
        found = found or header
        if columns.source in header and columns.summary in header:
            found, delimiter = header, each
            break
    _check_header(found, columns, name)
    return found, delimiter


def _table_problem(error: csv.Error) -> str:
    if "unexpected end" in str(error):
        return "Its quotation mark is never closed, so that all that follows belongs to it."
    return f"It is no record of a table: {error}."


def _check_header(header: list[str], columns: Columns, name: str) -> None:
    for column in (columns.source, columns.summary, columns.id, columns.questions):
        if header.count(column) > 1:
            raise InputError(f"{name!r} has two columns {column!r}.", "Rename one of them.")
    refuse_missing(columns, header, name)


def _parquet_rows(name: str, columns: Columns) -> Iterator[Row]:
    if name == STDIN or Path(name).suffix.lower() in _COMPRESSED:
        raise UsageError(f"Parquet cannot be read from {name!r}.", "Give a file that ends in '.parquet'.")
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise _not_installed(name, "pyarrow") from error
    number = 0
    with opened(name) as file:
        try:
            table = pyarrow.parquet.ParquetFile(file)
        except (pyarrow.ArrowException, OSError) as error:
            hint = "Export it again."
            raise InputError(f"{name!r} is no Parquet file, or a damaged one.", hint) from error
        present = table.schema_arrow.names
        _check_header(present, columns, name)
        wanted = {columns.source, columns.summary, columns.id, columns.questions}
        wanted |= {"input", "output", "runInput", "runOutput"}
        batches = table.iter_batches(_PARQUET_ROWS, columns=[each for each in present if each in wanted])
        while True:
            try:
                batch = next(batches, None)
            except (pyarrow.ArrowException, OSError):
                yield Row(number + 1, problem=_BREAKS_OFF)
                return
            if batch is None:
                return
            for position in range(batch.num_rows):
                number += 1
                yield _parquet_row(number, batch.slice(position, 1), columns)


def _parquet_row(number: int, record: Any, columns: Columns) -> Row:
    try:
        values = record.to_pylist()[0]
    except UnicodeDecodeError:
        return Row(number, problem="It holds bytes that are not UTF-8.")
    return row_of(number, values, columns)


def count_rows(name: str, *, format: RowFormat | None = None, columns: Columns | None = None) -> int:
    """Return the number of rows of an input other than standard input; lines that are blank may count.

    Raises:
        InputError, UsageError: as `read_rows`.
    """
    path = Path(name)
    if path.is_file() and path.suffix.lower() not in _COMPRESSED and (format or _format_of(name)) == "jsonl":
        with opened(name) as file:
            blocks = iter(lambda: file.read(2**20), b"")
            last, count = b"\n", 0
            for block in blocks:
                count, last = count + block.count(b"\n"), block[-1:]
            return count + (last != b"\n")
    return sum(1 for _ in read_rows(name, format=format, columns=columns))


def _folder_rows(folder: Path) -> Iterator[Row]:
    """Yield a row for each summary below a folder, in the order of their paths."""
    try:
        files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    except OSError as error:
        raise InputError(f"{str(folder)!r} cannot be read: {error.strerror}.", "Check the path.") from None
    sources: dict[tuple[Path, str], Path] = {}
    twice: set[tuple[Path, str]] = set()
    summaries: list[tuple[Path, tuple[Path, str]]] = []
    whole = {path.parent for path in files if path.stem == _SOURCE}
    for path in files:
        pair, _, role = path.stem.rpartition(".")
        key = (path.parent, pair)
        if role == _SOURCE and (pair or path.parent in whole):
            twice |= {key} & sources.keys()
            sources[key] = path
        elif path.parent in whole:
            summaries.append((path, (path.parent, "")))
        elif role == "summary" and pair:
            summaries.append((path, key))
    if not summaries:
        raise InputError(
            f"{str(folder)!r} holds no summary.",
            "Name files NAME.source.txt and NAME.summary.txt, or put each source.txt with its summaries into "
            "a folder of its own.",
        )
    lonely = sources.keys() - {key for _, key in summaries}
    paired = sorted([*summaries, *((sources[key], key) for key in lonely)])
    for number, (path, key) in enumerate(paired, start=1):
        id = _printable(path.relative_to(folder).as_posix())
        if key in lonely:
            yield Row(number, id, problem="No summary belongs to this source.")
        elif key not in sources:
            yield Row(number, id, problem="No source belongs to this summary.")
        elif key in twice:
            yield Row(number, id, problem="More than one source belongs to this summary.")
        else:
            yield _document_row(number, id, sources[key], path)


def _document_row(number: int, id: str, source: Path, summary: Path) -> Row:
    try:
        return row_of(
            number,
            {"id": id, "source": read_document(source), "summary": read_document(summary)},
            Columns(),
        )
    except InputError as error:
        return Row(number, id, problem=str(error))


def _printable(name: str) -> str:
    """Return a name that can be an id: bytes that are not UTF-8, and control characters, are replaced."""
    return "".join(c if c.isprintable() else "\ufffd" for c in name)
