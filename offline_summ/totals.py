"""What many results come to: counts, means and quantiles, failures by kind. Failures are no numbers.

Knows nothing of files and terminals.
"""

import statistics
from array import array
from collections import Counter
from typing import Any

from offline_summ.schemas import SummarizationResult

_QUANTILES = (5, 25, 50, 75, 95)


class Totals:
    """Adds up results, one after the other, in a few bytes each."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._scores: dict[str, array[float]] = {
            name: array("d") for name in ("score", "alignment_score", "coverage_score")
        }
        self._decided: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._notes: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._calls = 0

    @property
    def scored(self) -> int:
        """Number of results with a score."""
        return len(self._scores["score"])

    @property
    def failed(self) -> int:
        """Number of results with a failure."""
        return self._failures.total()

    @property
    def rows(self) -> int:
        """Number of results."""
        return self.scored + self.failed

    def below(self, bar: float) -> int:
        """Return the number of scores below `bar`."""
        return sum(score < bar for score in self._scores["score"])

    @property
    def tokens(self) -> int:
        """Tokens of all prompts and replies, those from the prefix cache included."""
        return self._tokens["prompt"] + self._tokens["generated"]

    @property
    def cached_share(self) -> float | None:
        """Share of the prompt tokens that came from the prefix cache; None without any."""
        prompt = self._tokens["prompt"]
        return self._tokens["cached"] / prompt if prompt else None

    @property
    def mean_score(self) -> float | None:
        """Mean of the scores; None without any."""
        scores = self._scores["score"]
        return statistics.fmean(scores) if scores else None

    def add(self, result: SummarizationResult) -> None:
        """Take in one result."""
        self._calls += result.run.calls
        for name, count in result.run.tokens.model_dump().items():
            self._tokens[name] += count
        if result.failure is not None:
            self._failures[result.failure.kind] += 1
            return
        for name, values in self._scores.items():
            value = getattr(result, name)
            if value is not None:
                values.append(value)
        self._decided[result.deciding_axis] += 1
        self._notes.update(result.notes)

    def summary(self) -> dict[str, Any]:
        """Return everything as a dictionary that JSON can hold.

        Quantiles are those of `statistics.quantiles(method="inclusive")`.
        """
        return {
            "rows": self.rows,
            "scored": self.scored,
            "failed": self.failed,
            "failures": dict(self._failures.most_common()),
            "scores": {name: _figures(values) for name, values in self._scores.items() if values},
            "deciding_axis": dict(self._decided.most_common()),
            "notes": dict(self._notes.most_common()),
            "calls": self._calls,
            "tokens": {name: self._tokens[name] for name in ("prompt", "cached", "generated")},
        }


def _figures(values: "array[float]") -> dict[str, float]:
    percentiles = statistics.quantiles(values, n=100, method="inclusive") if len(values) > 1 else None
    return {
        "mean": statistics.fmean(values),
        "min": min(values),
        **{f"p{q}": values[0] if percentiles is None else percentiles[q - 1] for q in _QUANTILES},
        "max": max(values),
    }
