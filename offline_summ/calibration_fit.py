"""Fits scales to human labels, and measures what they are worth on documents the fit did not see.

All items of a document stay together, in every fold, resample and draw, because they share its difficulty.
Knows nothing of texts, judges and files: an item is a document's name, a probability and a label.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from offline_summ.calibration import (
    ALL_LANGUAGES,
    LEAST_PROBABILITY,
    UNCALIBRATED,
    Decision,
    Estimate,
    Figures,
    FittedScale,
    Scale,
    logit,
    sigmoid,
)
from offline_summ.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Booleans = npt.NDArray[np.bool_]
    Indices = npt.NDArray[np.intp]

_SEED = 0
_FOLDS = 5
_BINS = 10
_RESAMPLES = 1000
_LEAST_ITEMS = 10
_LEAST_OF_A_CLASS = 10
_LEAST_SLOPE = 1e-3  # from one clip to the other it moves no probability by 0.01: it separates nothing
_WEAK_PENALTY = 100.0  # keeps the slope finite where a threshold separates the labels without error


@dataclass(frozen=True)
class Judged:
    """One item with the judge's probability and the label of people.

    Attributes:
        document: names the source it comes from.
        language: code of its language.
        raw: the judge's probability that it is supported, or answered; 0 to 1.
        label: whether people say it is.
    """

    document: str
    language: str
    raw: float
    label: bool


@dataclass(frozen=True)
class CurvePoint:
    """What a scale fitted to about `items` labelled items is worth on the other documents, on average.

    Attributes:
        items: labelled items asked for; 0 is no calibration, over all items.
        balanced_accuracy: mean over the draws.
        ece: mean expected calibration error over the draws.
    """

    items: int
    balanced_accuracy: float
    ece: float


def fit_axis(judged: Sequence[Judged], min_items: int = 50) -> dict[str, FittedScale]:
    """Fit one scale to all languages together, and one to each language with enough items.

    Args:
        judged: the items of one axis.
        min_items: least items of a language with its own scale; it also needs 10 of each label.

    Returns:
        Language to scale, "all" included. If there is one language only, both are the same scale. A
        language whose own items cannot be fitted is left to "all".

    Raises:
        UsageError: all items together cannot be fitted, see `fit_scale`.
    """
    languages = sorted({item.language for item in judged})
    together = fit_scale(judged)
    if len(languages) == 1:
        return {ALL_LANGUAGES: together, languages[0]: together}
    scales = {ALL_LANGUAGES: together}
    for language in languages:
        own = [item for item in judged if item.language == language]
        positives = sum(item.label for item in own)
        if len(own) >= min_items and min(positives, len(own) - positives) >= _LEAST_OF_A_CLASS:
            try:
                scales[language] = fit_scale(own)
            except UsageError:
                continue
    return scales


def fit_scale(judged: Sequence[Judged]) -> FittedScale:
    """Fit one scale to labelled items.

    Slope and intercept are Platt scaling: a logistic regression of the label on logit(raw). The threshold is
    the calibrated probability at which a second regression, that weighs both labels equally, is undecided;
    if the logistic model holds, no other threshold has a higher expected balanced accuracy.

    Returns:
        The scale, with figures over out-of-fold probabilities and verdicts (up to five folds of documents)
        and 95 % intervals from 1000 resamples of documents.

    Raises:
        UsageError: there are fewer than 10 items, fewer than two documents or one label only, or a higher
            probability does not go with a positive label.
    """
    import numpy as np

    refuse_too_few(judged)
    scale = _fitted(judged)
    labels, raw = _labels(judged), np.array([item.raw for item in judged])
    if scale is None:
        raise UsageError(
            f"The judge's probabilities do not separate the {len(judged)} labelled items: their AUC is "
            f"{auc(labels, raw):.2f}.",
            "Check the labels, or choose another judge.",
        )
    held_out = _out_of_fold(judged)
    documents = _document_numbers(judged)
    return FittedScale(
        **scale.model_dump(),
        items=len(judged),
        positives=int(labels.sum()),
        documents=int(documents.max()) + 1,
        before=_figures(labels, raw, raw >= UNCALIBRATED.threshold, documents),
        after=_figures(labels, _probabilities(held_out), _verdicts(held_out), documents),
    )


class _Labelled(Protocol):
    @property
    def document(self) -> str: ...
    @property
    def label(self) -> bool: ...


def refuse_too_few(items: Sequence[_Labelled], what: str = "labelled items") -> None:
    """Refuse labels that no scale can be fitted to, whatever a judge says about them.

    Args:
        items: the items of one axis.
        what: their name for the errors, in the plural.

    Raises:
        UsageError: there are fewer than 10 items, fewer than two documents, or one label only.
    """
    if len(items) < _LEAST_ITEMS:
        raise UsageError(
            f"{len(items)} {what} are too few to fit a scale.",
            f"Label at least {_LEAST_ITEMS}, better 50 or more, or leave them out.",
        )
    if len({item.document for item in items}) < 2:
        raise UsageError(
            f"All {len(items)} {what} come from one document.", "Label summaries of at least two documents."
        )
    if len({item.label for item in items}) < 2:
        word = "positive" if items[0].label else "negative"
        raise UsageError(f"All {len(items)} {what} are {word}.", "Add items with the other label.")


def learning_curve(
    judged: Sequence[Judged], sizes: Sequence[int] = (25, 50, 100, 200, 400), repeats: int = 20
) -> list[CurvePoint]:
    """Measure how much labelling pays: fit to some documents, evaluate on all others.

    Args:
        judged: items of one axis that `fit_scale` accepts.
        sizes: labelled items to fit to; whole documents are drawn until there are as many. Sizes above half
            of the items are left out.
        repeats: random draws a size. A draw that cannot be fitted counts as uncalibrated; one that leaves
            a single label to evaluate on is passed over.

    Returns:
        The uncalibrated point, then one point a size, in the order given.
    """
    import numpy as np

    documents = _document_numbers(judged)
    generator = np.random.default_rng(_SEED)
    orders = [generator.permutation(documents.max() + 1) for _ in range(repeats)]
    points = [CurvePoint(0, *_worth(judged, UNCALIBRATED))]
    for size in sizes:
        if size > len(judged) / 2:
            continue
        worths = []
        for order in orders:
            drawn = set(order[: _documents_needed(np.bincount(documents)[order], size)])
            taken = [item for item, number in zip(judged, documents, strict=True) if number in drawn]
            rest = [item for item, number in zip(judged, documents, strict=True) if number not in drawn]
            if len({item.label for item in rest}) == 2:
                worths.append(_worth(rest, _fitted(taken) or UNCALIBRATED))
        if worths:
            accuracy, error = np.mean(worths, axis=0)
            points.append(CurvePoint(size, float(accuracy), float(error)))
    return points


def balanced_accuracy(labels: "Booleans", verdicts: "Booleans", weights: "Floats | None" = None) -> float:
    """Return the mean of the shares of positive and of negative items that were judged right."""
    import numpy as np

    weights = np.ones(len(labels)) if weights is None else weights
    found = weights[labels & verdicts].sum() / weights[labels].sum()
    spared = weights[~labels & ~verdicts].sum() / weights[~labels].sum()
    return float(found + spared) / 2


def auc(labels: "Booleans", probabilities: "Floats", weights: "Floats | None" = None) -> float:
    """Return the probability that a positive item lies above a negative one; a tie counts half."""
    import numpy as np

    weights = np.ones(len(labels)) if weights is None else weights
    levels, level = np.unique(probabilities, return_inverse=True)
    positive = np.bincount(level, weights * labels, minlength=len(levels))
    negative = np.bincount(level, weights * ~labels, minlength=len(levels))
    below = np.cumsum(negative) - negative
    return float((positive * (below + negative / 2)).sum() / (positive.sum() * negative.sum()))


def expected_calibration_error(
    labels: "Booleans", probabilities: "Floats", weights: "Floats | None" = None
) -> float:
    """Return the mean distance between probability and share of positives over ten bins of equal width.

    Each bin counts as much as it has items (Naeini et al. 2015, "Obtaining well calibrated probabilities
    using Bayesian binning").
    """
    import numpy as np

    weights = np.ones(len(labels)) if weights is None else weights
    bins = np.minimum((probabilities * _BINS).astype(np.intp), _BINS - 1)
    gaps = np.bincount(bins, weights * (probabilities - labels), minlength=_BINS)
    return float(np.abs(gaps).sum() / weights.sum())


def _fitted(judged: Sequence[Judged]) -> Scale | None:
    """Return the scale, or None if there is one label only or the probabilities do not rise with it."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    labels = _labels(judged)
    if labels.all() or not labels.any():
        return None
    log_odds = np.array([[logit(item.raw)] for item in judged])
    lines = []
    for class_weight in (None, "balanced"):
        model = LogisticRegression(C=_WEAK_PENALTY, class_weight=class_weight, solver="newton-cg")
        model.fit(log_odds, labels)
        lines.append((float(model.coef_[0, 0]), float(model.intercept_[0])))
    (slope, intercept), (balanced_slope, balanced_intercept) = lines
    if min(slope, balanced_slope) < _LEAST_SLOPE:
        return None
    threshold = sigmoid(intercept - slope * balanced_intercept / balanced_slope)
    threshold = min(max(threshold, LEAST_PROBABILITY), 1 - LEAST_PROBABILITY)
    return Scale(slope=slope, intercept=intercept, threshold=threshold)


def _out_of_fold(judged: Sequence[Judged]) -> list[Decision]:
    """Decide each item with the scale of the other folds; uncalibrated where they cannot be fitted."""
    decisions = [UNCALIBRATED.decide(item.raw) for item in judged]
    for training, held_out in _folds(judged):
        scale = _fitted([judged[i] for i in training])
        if scale is not None:
            for i in held_out:
                decisions[i] = scale.decide(judged[i].raw)
    return decisions


def _folds(judged: Sequence[Judged]) -> "list[tuple[Indices, Indices]]":
    """Split into folds of whole documents, with the same share of positives in each where that works."""
    from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

    labels, documents = _labels(judged), _document_numbers(judged)
    count = min(_FOLDS, int(documents.max()) + 1)
    if min(labels.sum(), (~labels).sum()) >= count:
        folds = list(StratifiedGroupKFold(count).split(labels, labels, documents))
        if all(labels[training].any() and not labels[training].all() for training, _ in folds):
            return folds
    return list(GroupKFold(count).split(labels, labels, documents))


def _figures(
    labels: "Booleans", probabilities: "Floats", verdicts: "Booleans", documents: "Indices"
) -> Figures:
    import numpy as np

    def measured(weights: "Floats | None" = None) -> tuple[float, float, float]:
        return (
            balanced_accuracy(labels, verdicts, weights),
            auc(labels, probabilities, weights),
            expected_calibration_error(labels, probabilities, weights),
        )

    generator = np.random.default_rng(_SEED)
    count = int(documents.max()) + 1
    resampled = []
    for _ in range(_RESAMPLES):
        times_drawn = np.bincount(generator.integers(0, count, count), minlength=count)
        weights = times_drawn[documents].astype(np.float64)
        if weights[labels].any() and weights[~labels].any():
            resampled.append(measured(weights))
    lows, highs = np.percentile(resampled, [2.5, 97.5], axis=0)
    estimates = [
        Estimate(value=value, low=float(low), high=float(high))
        for value, low, high in zip(measured(), lows, highs, strict=True)
    ]
    return Figures(balanced_accuracy=estimates[0], auc=estimates[1], ece=estimates[2])


def _worth(judged: Sequence[Judged], scale: Scale) -> tuple[float, float]:
    decisions = [scale.decide(item.raw) for item in judged]
    labels = _labels(judged)
    return (
        balanced_accuracy(labels, _verdicts(decisions)),
        expected_calibration_error(labels, _probabilities(decisions)),
    )


def _documents_needed(items: "Indices", size: int) -> int:
    """Return how many documents, in this order, together have at least `size` items."""
    import numpy as np

    return int(np.searchsorted(np.cumsum(items), size)) + 1


def _document_numbers(judged: Sequence[Judged]) -> "Indices":
    import numpy as np

    return np.unique([item.document for item in judged], return_inverse=True)[1]


def _labels(judged: Sequence[Judged]) -> "Booleans":
    import numpy as np

    return np.array([item.label for item in judged], dtype=np.bool_)


def _probabilities(decisions: Sequence[Decision]) -> "Floats":
    import numpy as np

    return np.array([decision.probability for decision in decisions])


def _verdicts(decisions: Sequence[Decision]) -> "Booleans":
    import numpy as np

    return np.array([decision.yes for decision in decisions], dtype=np.bool_)
