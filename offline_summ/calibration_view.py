"""A calibration as people read it in a terminal: what it was fitted to, and what that gained.

Knows nothing of how the figures were computed.
"""

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from offline_summ.calibration import ALL_LANGUAGES, Axis, Calibration, Estimate, FittedScale, logit, sigmoid
from offline_summ.calibration_fit import CurvePoint
from offline_summ.render import visible

_LABELLED_YES: Mapping[Axis, str] = {"alignment": "supported", "coverage": "covered"}
_NOTE = (
    "Every figure comes from documents that the fit did not see; brackets are 95 % intervals. "
    "ECE is the expected calibration error: lower is better."
)


def calibration_view(
    calibration: Calibration, curves: Mapping[tuple[Axis, str], Sequence[CurvePoint]]
) -> RenderableType:
    """Return a calibration for a terminal of at least 80 columns: one block for each axis and language.

    Where one language gave the scale of all languages, it has one block.

    Args:
        calibration: the calibration.
        curves: axis and language to learning curve; a block whose curve is missing or empty has none.
    """
    judge = f"judge {calibration.judge}, protocol {calibration.protocol}"
    parts: list[RenderableType] = [Text(visible(judge), style="dim")]
    for axis, scales in calibration.axes.items():
        for language, scale in scales.items():
            if language == ALL_LANGUAGES and list(scales.values()).count(scale) > 1:
                continue
            parts += ["", *_block(axis, language, scale, curves.get((axis, language), ()))]
    return Group(*parts, "", Text(_NOTE, style="dim"))


def _block(
    axis: Axis, language: str, scale: FittedScale, curve: Sequence[CurvePoint]
) -> list[RenderableType]:
    where = "all languages" if language == ALL_LANGUAGES else f"language {visible(language)}"
    parts: list[RenderableType] = [
        Text(f"{axis.capitalize()}, {where}", style="bold"),
        Text(
            f"{scale.items} items of {scale.documents} documents, "
            f"{100 * scale.positives / max(scale.items, 1):.0f} % {_LABELLED_YES[axis]}"
        ),
        Text(f"threshold {scale.threshold:.2f}, which is a raw probability of {_raw_threshold(scale)}"),
        _figures_table(scale),
    ]
    if curve:
        parts.append(_curve_table(curve))
    return parts


def _raw_threshold(scale: FittedScale) -> str:
    raw = sigmoid((logit(scale.threshold) - scale.intercept) / scale.slope)
    return f"{raw:.2f}" if 0.01 <= raw <= 0.99 else f"{raw:.5f}"


def _figures_table(scale: FittedScale) -> Table:
    table = _table("", "balanced accuracy", "AUC", "ECE")
    for name, figures in (("before", scale.before), ("after", scale.after)):
        estimates = (figures.balanced_accuracy, figures.auc, figures.ece)
        table.add_row(name, *map(_with_interval, estimates))
    return table


def _curve_table(curve: Sequence[CurvePoint]) -> Table:
    table = _table("labelled items", "balanced accuracy", "ECE")
    for point in curve:
        items = str(point.items) if point.items else "none"
        table.add_row(Text(items), f"{point.balanced_accuracy:.2f}", f"{point.ece:.2f}")
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _with_interval(estimate: Estimate) -> Text:
    return Text(f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]")
