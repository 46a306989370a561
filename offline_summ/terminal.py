"""What the command line says on a terminal: results, progress, and the one line of an error.

Knows nothing of commands.
"""

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from offline_summ.weights_files import Progress


def fill_closed_descriptors() -> None:
    """Open /dev/null in place of a closed standard stream, so that no file of ours becomes one by chance."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def write(text: str) -> None:
    """Write a result to standard output, in UTF-8 whatever the locale says."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8"))
    sys.stdout.buffer.flush()


def show(view: "RenderableType") -> None:
    """Show something for people on standard output."""
    from rich.console import Console

    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    Console(highlight=False, markup=False, emoji=False).print(view)


class ProgressLine:
    """What a terminal shows while work goes on; silent where standard error is no terminal."""

    def __init__(self, live: Any) -> None:
        """Keep the display; None shows nothing."""
        self._live = live
        self._stage = ""
        self._task: Any = None

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


def complain(message: str, code: int) -> int:
    """Write one line to standard error and return the exit code."""
    from offline_summ.render import visible

    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    with contextlib.suppress(OSError):
        os.write(terminal(), f"offline-summ: {visible(message)}\n".encode(encoding, "backslashreplace"))
    return code


@functools.cache
def terminal() -> int:
    """Return a descriptor of standard error as it was at the start: while vLLM loads, 2 is its log."""
    return os.dup(2)
