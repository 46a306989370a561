"""A run over many rows that keeps its results in a file, and goes on where it was stopped.

Knows nothing of how a judge is asked, and of the command line.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from offline_summ.errors import InputError, OfflineSummError, UsageError
from offline_summ.results_file import ResultsFile, places_of_rows, read_result_at, read_results
from offline_summ.row_files import STDIN, RowFormat, count_rows, read_rows
from offline_summ.rows import Columns, Row
from offline_summ.schemas import SummarizationResult
from offline_summ.scorer import SummarizationScorer
from offline_summ.table_file import refuse_table
from offline_summ.totals import Totals

OnWritten = Callable[[Totals], None]


@dataclass(frozen=True)
class BatchInput:
    """Where rows come from.

    Attributes:
        name: a file, a folder, or "-" for standard input; see `row_files.read_rows`.
        format: of the file; None goes by its ending.
        columns: names of the columns.
    """

    name: str
    format: RowFormat | None = None
    columns: Columns = field(default_factory=Columns)

    def rows(self) -> Iterator[Row]:
        """Yield the rows, with the digests of their texts."""
        for row in read_rows(self.name, format=self.format, columns=self.columns):
            yield replace(row, text_sha256=_text_sha256(row))

    @property
    def can_be_read_again(self) -> bool:
        """Whether it is a file or a folder, and not standard input or another pipe."""
        return self.name != STDIN and (Path(self.name).is_file() or Path(self.name).is_dir())

    def check(self) -> None:
        """Refuse an input that cannot be opened, lacks a column or has no row; a pipe is not read.

        Raises:
            InputError, UsageError: as `row_files.read_rows`.
        """
        if self.name == STDIN or (Path(self.name).exists() and not self.can_be_read_again):
            return
        if next(read_rows(self.name, format=self.format, columns=self.columns), None) is None:
            raise InputError(f"{self.name!r} holds no row.", "Give an input with rows.")

    def count(self) -> int | None:
        """Return the number of rows, or None if that cannot be known before they are read."""
        if not self.can_be_read_again:
            return None
        try:
            return count_rows(self.name, format=self.format, columns=self.columns)
        except OfflineSummError:
            return None


@dataclass(frozen=True)
class BatchOutcome:
    """What a run came to.

    Attributes:
        totals: of all results in the file.
        resumed: how many of them were there before.
        seconds: wall time of the others, loading of the judge excluded.
    """

    totals: Totals
    resumed: int
    seconds: float

    @property
    def rows_per_minute(self) -> float | None:
        """Rows of this run, those that failed included, a minute; None without any."""
        rows = self.totals.rows - self.resumed
        return 60 * rows / self.seconds if rows and self.seconds else None

    def summary(self) -> dict[str, Any]:
        """Return everything as a dictionary that JSON can hold."""
        speed = {
            "resumed": self.resumed,
            "seconds": round(self.seconds, 3),
            "rows_per_minute": self.rows_per_minute,
        }
        return {**self.totals.summary(), **speed}


def run_batch(
    scorer: SummarizationScorer,
    source: BatchInput,
    output: Path,
    *,
    resume: bool = True,
    retry_failed: bool = False,
    concurrency: int | None = None,
    ordered: bool = False,
    on_written: OnWritten = lambda totals: None,
) -> BatchOutcome:
    """Score the rows of an input and append each result to a file as soon as it is there.

    Args:
        scorer: the judge and the options.
        source: where the rows come from.
        output: the file for the results, JSON Lines. If it holds results of this input and these settings,
            the rows that they belong to are not scored again.
        resume: whether results that are there already may be continued.
        retry_failed: whether rows that failed are tried again; their failures are removed.
        concurrency: most rows at once; None goes by what the engine works on at once.
        ordered: whether results are written in the order of the rows.
        on_written: told what the file holds, whenever more results are on disk.

    Raises:
        UsageError: the output holds results of another input or of other settings, or another run writes
            to it.
        InputError: the input cannot be read, or the output holds something else than results.
        JudgeError: the judge cannot be loaded or keeps stopping, or the output cannot be written.
    """
    with ResultsFile(output) as file:
        done = _Done(output, file.end_of_lines(), retry_failed=retry_failed)
        if done.texts and not resume:
            raise UsageError(
                f"{str(output)!r} holds results already.", "Remove it, or leave out --no-resume."
            )
        if source.can_be_read_again:
            done.refuse_another_input(source)
        scorer.start()
        settings = scorer.settings_sha256()
        done.refuse_other_settings(settings)
        file.cut_half_line()
        if done.retried:
            file.rewrite(lambda result: result.failure is None)
        done.find_places()

        def rows() -> Iterator[Row]:
            for row in source.rows():
                if done.has(row):
                    continue
                if row.questions is None and (twin := done.result_of(row.source)) is not None:
                    scorer.remember_questions(row.source, twin)
                yield replace(row, settings_sha256=settings)

        started = time.monotonic()
        for chunk in scorer.score_many(rows(), concurrency=concurrency, ordered=ordered).chunks():
            file.append(chunk)
            for result in chunk:
                done.totals.add(result)
            on_written(done.totals)
        done.refuse_missing_rows()
        return BatchOutcome(done.totals, len(done.texts), time.monotonic() - started)


def refuse_outputs(source: str, output: Path, table: Path | None, summary: Path | None) -> None:
    """Refuse names of outputs that cannot be written, or that are the input or each other.

    Raises:
        UsageError: one of them is.
    """
    if table is not None:
        refuse_table(table)
    named = {"INPUT": None if source == STDIN else Path(source), "--output": output}
    named |= {"--table": table, "--summary-json": summary}
    places: dict[Path, str] = {}
    for name, path in named.items():
        if path is None:
            continue
        if name != "INPUT" and (not path.parent.is_dir() or (path.exists() and not path.is_file())):
            raise UsageError(f"{name} is {str(path)!r}.", "Name a regular file in a folder that exists.")
        place = path.resolve()
        if (
            name != "INPUT"
            and source != STDIN
            and Path(source).is_dir()
            and Path(source).resolve() in place.parents
        ):
            raise UsageError(
                f"{name} is {str(path)!r}, which is inside the input folder.", "Write it somewhere else."
            )
        if place in places:
            raise UsageError(f"{places[place]} and {name} are both {str(path)!r}.", "Name two files.")
        places[place] = name


class _Done:
    """The rows that a file has results for."""

    def __init__(self, output: Path, end: int, *, retry_failed: bool) -> None:
        self.texts: dict[int, bytes] = {}
        self.totals = Totals()
        self.retried = 0
        self._path = output
        self._output = str(output)
        self._retry_failed = retry_failed
        self._settings: dict[str, SummarizationResult] = {}
        self._seen = 0
        self._places: dict[int, int] = {}
        self._sources: dict[bytes, int] = {}
        for result in read_results(output, end=end):
            self._add(result)

    def _add(self, result: SummarizationResult) -> None:
        place = result.input
        if place is None or place.text_sha256 is None or place.settings_sha256 is None:
            raise UsageError(
                f"{self._output!r} holds results of something else than a batch.", "Name another file."
            )
        if self._retry_failed and result.failure is not None:
            self.retried += 1
            return
        if place.number in self.texts:
            raise UsageError(f"{self._output!r} has two results of row {place.number}.", "Name another file.")
        self.texts[place.number] = bytes.fromhex(place.text_sha256)
        self._settings.setdefault(place.settings_sha256, result)
        self.totals.add(result)

    def find_places(self) -> None:
        """Note where in the file the result of each row stands."""
        self._places = places_of_rows(self._path)

    def result_of(self, source: str) -> SummarizationResult | None:
        """Return the result of some summary of a source, if there is one."""
        number = self._sources.get(_digest(source))
        return None if number is None else read_result_at(self._path, self._places[number])

    def has(self, row: Row) -> bool:
        """Whether there is a result of this row."""
        known = self.texts.get(row.number)
        if known is None:
            return False
        if row.text_sha256 is None or known != bytes.fromhex(row.text_sha256):
            raise UsageError(
                f"Row {row.number} of the input is not the one that {self._output!r} has a result of.",
                "Name another file for the results, or --retry-failed if you have mended rows that failed.",
            )
        self._seen += 1
        return True

    def refuse_another_input(self, source: BatchInput) -> None:
        """Read the rows that there are results of, before anything is loaded."""
        if not self.texts:
            return
        last = max(self.texts)
        for row in source.rows():
            if self.has(row) and row.questions is None and row.problem is None:
                self._sources.setdefault(_digest(row.source), row.number)
            if row.number >= last:
                break
        self.refuse_missing_rows()
        self._seen = 0

    def refuse_missing_rows(self) -> None:
        if self._seen < len(self.texts):
            raise UsageError(
                f"{self._output!r} has results of {len(self.texts)} rows, but the input has only "
                f"{self._seen} of them.",
                "Name another file for the results.",
            )

    def refuse_other_settings(self, settings: str) -> None:
        for other, result in self._settings.items():
            if other != settings:
                run = result.run
                raise UsageError(
                    f"{self._output!r} holds results with other settings (judge {run.judge!r}, protocol "
                    f"{run.protocol!r}; weights, prompts, calibration or options may differ).",
                    "Name another file for the results, or repeat the options of the first run.",
                )


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]


def _text_sha256(row: Row) -> str:
    texts: list[Any] = [row.id, row.source, row.summary, row.questions, row.problem]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()
