"""What a run came to, for a terminal. Knows nothing of how it came about."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from offline_summ.batch import BatchOutcome

_NAMES = {"score": "score", "alignment_score": "alignment", "coverage_score": "coverage"}
_COLUMNS = ("mean", "min", "p5", "p25", "p50", "p75", "p95", "max")


def batch_view(outcome: BatchOutcome) -> RenderableType:
    """Return rows, failures, distribution of score and axes, what decided, and the cost."""
    summary = outcome.summary()
    heading = f"{summary['scored']} of {summary['rows']} rows scored"
    if outcome.resumed:
        heading += f", {outcome.resumed} of them in an earlier run"
    parts: list[RenderableType] = [Text(heading, style="bold")]
    if summary["failures"]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in summary["failures"].items())
        parts.append(Text(f"Failed: {kinds}", style="red"))
    if summary["scores"]:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for column in ("", *_COLUMNS):
            table.add_column(column, no_wrap=True)
        for name, figures in summary["scores"].items():
            table.add_row(_NAMES[name], *(f"{figures[column]:.2f}" for column in _COLUMNS))
        decided = ", ".join(f"{axis} {count}" for axis, count in summary["deciding_axis"].items())
        parts += ["", table, "", Text(f"Decided by: {decided}")]
    if summary["notes"]:
        parts.append(Text(f"Notes: {', '.join(f'{note} {n}' for note, n in summary['notes'].items())}"))
    tokens, cached = summary["tokens"], outcome.totals.cached_share
    cost = f"{summary['calls']} calls, {tokens['prompt']} + {tokens['generated']} tokens"
    if cached is not None:
        cost += f" ({cached:.0%} cached)"
    if outcome.rows_per_minute is not None:
        cost += f", {outcome.rows_per_minute:.3g} rows a minute"
    parts += [Text(cost, style="dim")]
    return Group(*parts)
