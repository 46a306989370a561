"""What the command line says on a terminal: results, progress, and the one line of an error.

Knows nothing of commands.
"""

import contextlib
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from offline_summ.totals import Totals
    from offline_summ.weights_files import Progress

_PLAIN_EVERY_S = 10.0


class Stopped(BaseException):
    """A signal asks the program to end. No KeyboardInterrupt: typer turns that into an exit of its own.

    Attributes:
        message: what happened, one sentence.
        hint: what to do next; empty if there is nothing to say.
        code: exit code.
    """

    def __init__(self, number: int) -> None:
        """Keep what the signal means."""
        super().__init__(number)
        self.message = "Interrupted." if number == signal.SIGINT else "Terminated."
        self.hint = ""
        self.code = 128 + number


def fill_closed_descriptors() -> None:
    """Open /dev/null in place of a closed standard stream, so that no file of ours becomes one by chance."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def write(text: str) -> None:
    """Write a result to standard output, in UTF-8 whatever the locale says."""
    with _reader_may_leave():
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()


def show(view: "RenderableType") -> None:
    """Show something for people on standard output."""
    from rich.console import Console

    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    console = Console(highlight=False, markup=False, emoji=False)
    with console.capture() as shown:  # printing itself, rich would exit where the reader went away
        console.print(view)
    with _reader_may_leave():
        sys.stdout.write(shown.get())
        sys.stdout.flush()


@contextlib.contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Go on in silence where the reader of standard output went away, as `head` does.

    What a command has to do besides printing, and its exit code, do not depend on that.
    """
    try:
        yield
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


class ProgressLine:
    """What a terminal shows while work goes on; silent where standard error is no terminal."""

    def __init__(self, live: Any) -> None:
        """Keep the display; None shows nothing."""
        self._live = live
        self._stage = ""
        self._task: Any = None

    @property
    def is_shown(self) -> bool:
        """Whether there is a terminal to show anything on."""
        return self._live is not None

    def describe(self, text: str, done: int, total: int | None) -> None:
        """Show a text in place of the stage, and how far it has come."""
        if self._live is not None:
            self._live.update(self._task, description=text, completed=done, total=total)

    def show(self, progress: "Progress") -> None:
        """Show a stage, and how far it has come where that is known."""
        if self._live is None:
            return
        if progress.stage != self._stage:
            if self._task is not None:
                self._live.remove_task(self._task)
            self._task = self._live.add_task(progress.stage, total=progress.total)
            self._stage = progress.stage
        self._live.update(self._task, completed=progress.done, total=progress.total)


@contextlib.contextmanager
def progress_line(quiet: bool) -> Iterator[ProgressLine]:
    """Show progress while the context lasts, if standard error is a terminal."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield ProgressLine(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    with os.fdopen(os.dup(terminal()), "w", encoding="utf-8", errors="replace") as stream:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(file=stream, force_terminal=True), transient=True) as live:
            yield ProgressLine(live)


class RunProgress:
    """What standard error shows of a run: one live line on a terminal, else a plain line now and then.

    Args:
        line: shows the live line; None where there is none.
        quiet: whether nothing is shown.
        count: returns the number of rows to come, or None.
    """

    def __init__(self, line: ProgressLine | None, quiet: bool, count: Callable[[], int | None]) -> None:
        """Count the rows while the judge loads."""
        self._line = line
        self._quiet = quiet
        self._total: int | None = None
        self._stage = ""
        self._shown = 0.0
        self._begun: tuple[float, int, int] | None = None
        if not quiet:
            threading.Thread(target=self._count_rows, args=(count,), daemon=True).start()

    def _count_rows(self, count: Callable[[], int | None]) -> None:
        self._total = count()

    def show(self, progress: "Progress") -> None:
        """Show a stage of loading."""
        if self._line is not None:
            self._line.show(progress)
        elif not self._quiet and progress.stage != self._stage:
            note(f"{progress.stage} ...")
        self._stage = progress.stage

    def count(self, totals: "Totals") -> None:
        """Show how far the run has come."""
        now = time.monotonic()
        if self._begun is None:
            self._begun = now, totals.rows, totals.tokens
        if self._quiet or (self._line is None and now - self._shown < _PLAIN_EVERY_S):
            return
        self._shown = now
        text = self._text(totals, now, *self._begun)
        if self._line is None:
            note(text)
        else:
            self._line.describe(text, totals.rows, self._total)

    def _text(self, totals: "Totals", now: float, since: float, rows: int, tokens: int) -> str:
        parts = [f"{totals.scored} scored, {totals.failed} failed"]
        if self._total is not None:
            parts[0] += f" of {max(self._total, totals.rows)}"
        seconds = now - since
        if seconds > 1 and totals.rows > rows:
            rate = (totals.rows - rows) / seconds
            parts.append(f"{60 * rate:.3g} rows a minute")
            parts.append(f"{(totals.tokens - tokens) / seconds:.0f} tokens a second")
            if self._total is not None and self._total > totals.rows:
                parts.append(f"{_duration((self._total - totals.rows) / rate)} left")
        if totals.cached_share is not None:
            parts.append(f"{totals.cached_share:.0%} cached")
        return ", ".join(parts)


@contextlib.contextmanager
def run_progress(quiet: bool, count: Callable[[], int | None]) -> Iterator[RunProgress]:
    """Show the progress of a run while the context lasts."""
    with progress_line(quiet) as line:
        yield RunProgress(line if line.is_shown else None, quiet or sys.stderr is None, count)


def note(line: str) -> None:
    """Write one line to standard error."""
    with contextlib.suppress(OSError):
        os.write(terminal(), f"offline-summ: {line}\n".encode())


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{max(minutes, 1)} min"


def complain(message: str, code: int) -> int:
    """Write one line to standard error and return the exit code."""
    from offline_summ.render import visible

    return report(visible(message), code)


def report(lines: str, code: int) -> int:
    """Write lines to standard error and return the exit code."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    with contextlib.suppress(OSError):
        os.write(terminal(), f"offline-summ: {lines}\n".encode(encoding, "backslashreplace"))
    return code


@functools.cache
def terminal() -> int:
    """Return a descriptor of standard error as it was at the start: while vLLM loads, 2 is its log."""
    return os.dup(2)
