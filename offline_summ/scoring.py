"""The arithmetic of a score, and every case in which a part of it is undefined.

    alignment = supported claims   / all claims
    coverage  = answered questions / all questions asked
    score     = min(alignment, coverage) x scale, or the one axis that was asked for x scale

Works on verdicts as booleans and on counts. Knows nothing of texts, models or results.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Axes = Literal["both", "alignment", "coverage"]
DecidingAxis = Literal["alignment", "coverage", "none"]

_ULP = 2.0**-52  # lets 1.005 round up although its nearest double lies below it


@dataclass(frozen=True)
class Score:
    """Scores of one example.

    Attributes:
        value: the score, from 0 to the scale, rounded half up to two decimals.
        alignment: share of supported claims, full precision; None if that axis was not asked for.
        coverage: share of answered questions, full precision; None if that axis was not asked for.
        deciding_axis: the axis that set the score; "none" if an axis that was asked for has nothing to
            count, or if both axes are equal.
    """

    value: float
    alignment: float | None
    coverage: float | None
    deciding_axis: DecidingAxis


def share(verdicts: Sequence[bool]) -> float:
    """Return the share of true verdicts, from 0 to 1; 0 if there is none to count."""
    return sum(verdicts) / len(verdicts) if verdicts else 0.0


def round_half_up(value: float) -> float:
    """Round a non-negative number to two decimals, halves up, as the reference scorer does.

    The reference computes `Math.round((value + epsilon) * 100) / 100` in JavaScript, so 0.125 gives 0.13
    where Python's own `round` gives 0.12.
    """
    return math.floor((value + _ULP) * 100 + 0.5) / 100


def score(supported: Sequence[bool], answered: Sequence[bool], *, axes: Axes, scale: float) -> Score:
    """Score one example from its verdicts.

    Args:
        supported: one verdict a claim of the summary.
        answered: one verdict a question asked; a question without a verdict counts as False.
        axes: the axes to score; an axis that was not asked for is ignored.
        scale: what a perfect score is worth; above 0.

    Returns:
        The score. No claims, or no questions, make the axis 0, and thereby the score.
    """
    alignment = share(supported) if axes != "coverage" else None
    coverage = share(answered) if axes != "alignment" else None
    asked = [axis for axis in (alignment, coverage) if axis is not None]
    countless = (alignment is not None and not supported) or (coverage is not None and not answered)
    return Score(
        value=round_half_up(min(asked) * scale),
        alignment=alignment,
        coverage=coverage,
        deciding_axis="none" if countless else _deciding_axis(alignment, coverage),
    )


def _deciding_axis(alignment: float | None, coverage: float | None) -> DecidingAxis:
    if coverage is None:
        return "alignment"
    if alignment is None:
        return "coverage"
    if alignment == coverage:
        return "none"
    return "alignment" if alignment < coverage else "coverage"
