"""What a check of results came to, for a terminal. Knows nothing of how it came about."""

import re
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from offline_summ.render import visible
from offline_summ.schemas import RunRecord
from offline_summ.verify import Check, Lines, ResultsRead, SetUp

_STYLES = {"same": "green", "different": "red", "not checkable": "yellow"}
_DIGEST = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")
_DIGEST_SHOWN = 12


def verify_view(read: ResultsRead, checks: Sequence[Sequence[Check]]) -> RenderableType:
    """Return one table a set-up, what is known of the network, and whether written scores hold.

    Args:
        read: what the file holds.
        checks: the comparisons of each set-up, in the order of `read.set_ups`.
    """
    parts: list[RenderableType] = []
    for set_up, compared in zip(read.set_ups, checks, strict=True):
        parts += [Text(_heading(set_up), style="bold"), _table(compared), Text(_networks(set_up)), ""]
    for how, lines in read.unclosed.items():
        if lines.count:
            said = "The network was open" if how == "open" else "How the network was closed is not recorded"
            parts.append(Text(f"{said}: {_named(lines)}", style="yellow"))
    if read.differing_scores.count:
        said = f"Written scores that the verdicts do not give: {_named(read.differing_scores)}"
        parts.append(Text(said, style="red"))
    else:
        parts.append(Text(f"Written scores follow from the verdicts: {_results(read.results)}"))
    if read.cut_line is not None:
        said = f"Line {read.cut_line} is cut, as a run that was stopped leaves it; it is not counted."
        parts.append(Text(said, style="yellow"))
    return Group(*parts)


def _heading(set_up: SetUp) -> str:
    return f"{_results(set_up.results)} of {_set_up(set_up.record)}"


def _set_up(record: RunRecord) -> str:
    said = [f"judge {record.judge}", f"engine {record.engine}", f"protocol {record.protocol}"]
    for name, value in (("dtype", record.dtype), ("grammar backend", record.grammar_backend)):
        said += [f"{name} {value}"] if value else []
    return visible(", ".join(said))


def _table(checks: Sequence[Check]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("", "in the results", "installed", ""):
        table.add_column(column)
    for check in checks:
        state = Text(check.state, style=_STYLES[check.state])
        table.add_row(visible(check.what), _short(check.recorded), _short(check.installed), state)
    return table


def _short(said: str) -> str:
    return _DIGEST.sub(lambda digest: digest[0][:_DIGEST_SHOWN], visible(said))


def _networks(set_up: SetUp) -> str:
    counts = (f"{how or 'not recorded'} {count}" for how, count in set_up.networks.items())
    return f"Network: {', '.join(counts)}"


def _named(lines: Lines) -> str:
    numbers = ", ".join(map(str, lines.first))
    more = lines.count - len(lines.first)
    where = f"line {numbers}" if lines.count == 1 else f"lines {numbers}"
    return f"{_results(lines.count)} ({where}{f' and {more} more' if more else ''})"


def _results(count: int) -> str:
    return f"{count} result{'' if count == 1 else 's'}"
