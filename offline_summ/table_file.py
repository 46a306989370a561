"""Results as one flat table for spreadsheets: CSV or Parquet, a row an example, in the order of the input.

Knows nothing of judges and of how rows are read.
"""

import csv
import os
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from offline_summ.errors import JudgeError, UsageError
from offline_summ.schemas import SummarizationResult

_TYPES: dict[str, str] = {
    "row": "int64",
    "id": "string",
    "status": "string",
    "score": "float64",
    "score_low": "float64",
    "score_high": "float64",
    "alignment_score": "float64",
    "coverage_score": "float64",
    "deciding_axis": "string",
    "claims": "int64",
    "supported": "int64",
    "questions": "int64",
    "answered": "int64",
    "reason": "string",
    "notes": "string",
    "failure": "string",
    "message": "string",
    "seconds": "float64",
}
COLUMNS = tuple(_TYPES)
_ROWS_AT_ONCE = 4096


def refuse_table(path: Path) -> None:
    """Refuse a name that no table can be written to.

    Raises:
        UsageError: its ending is neither `.csv` nor `.parquet`, its folder does not exist, or what writes it
            is not installed.
    """
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise UsageError(f"--table is {str(path)!r}.", "Give a name that ends in .csv or .parquet.")
    if not path.parent.is_dir() or path.is_dir():
        raise UsageError(f"{str(path)!r} cannot be written.", "Name a file in a folder that exists.")
    if path.suffix.lower() == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise UsageError(
                f"Writing {str(path)!r} needs pyarrow, which is not installed.",
                "Install it with: pip install 'offline-summ[tables]'",
            ) from error


def write_table(results: Iterable[SummarizationResult], path: Path) -> None:
    """Write results as a table; a file of that name is replaced whole or stays as it was.

    Args:
        results: the results, in the order of the table.
        path: ends in `.csv` (UTF-8 with a byte-order mark, as spreadsheets expect it) or `.parquet`.

    Raises:
        JudgeError: it cannot be written.
    """
    rows = map(_row, results)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=".part")
        os.close(handle)
        try:
            if path.suffix.lower() == ".csv":
                _write_csv(rows, name)
            else:
                _write_parquet(rows, name)
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise JudgeError(
            f"Table {str(path)!r} cannot be written: {error.strerror}.",
            "The results are kept; make room and run the same command again.",
        ) from None


def _row(result: SummarizationResult) -> tuple[Any, ...]:
    claims = result.preprocess_step_result.alignment
    coverage = result.analyze_step_result.coverage
    low, high = result.score_interval or (None, None)
    scored = result.failure is None
    return (
        result.input.number if result.input else None,
        result.id,
        result.status,
        result.score,
        low,
        high,
        result.alignment_score,
        result.coverage_score,
        result.deciding_axis,
        len(claims) if scored else None,
        sum(claim.supported for claim in claims) if scored else None,
        len(coverage) if scored else None,
        sum(question.answered for question in coverage) if scored else None,
        result.reason,
        " ".join(result.notes),
        result.failure and result.failure.kind,
        result.failure and result.failure.message,
        result.run.seconds,
    )


def _write_csv(rows: Iterable[tuple[Any, ...]], name: str) -> None:
    with open(name, "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(rows)
        file.flush()
        os.fsync(file.fileno())


def _write_parquet(rows: Iterable[tuple[Any, ...]], name: str) -> None:
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([(column, pyarrow.type_for_alias(kind)) for column, kind in _TYPES.items()])
    with pyarrow.parquet.ParquetWriter(name, schema) as writer:
        for some in _blocks(rows):
            arrays = [
                pyarrow.array(values, type=field.type)
                for values, field in zip(zip(*some, strict=True), schema, strict=True)
            ]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
    with open(name, "rb") as file:
        os.fsync(file.fileno())


def _blocks(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    left = iter(rows)
    while some := list(islice(left, _ROWS_AT_ONCE)):
        yield some
