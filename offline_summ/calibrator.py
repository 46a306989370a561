"""Calibrates a judge: asks it about labelled items in the itemized protocol, and fits scales to its answers.

Knows nothing of the command line and of the files that labels come from.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from offline_summ.airgap import Airgap
from offline_summ.calibration import UNCALIBRATED, Axis, Calibration, FittedScale
from offline_summ.calibration_fit import CurvePoint, Judged, fit_axis, learning_curve, refuse_too_few
from offline_summ.engines.base import Engine
from offline_summ.engines.choice import engine_of, judge_of
from offline_summ.errors import ExampleError, FailureKind, JudgeError, UsageError
from offline_summ.grammar import decision_grammar
from offline_summ.judges import Judge
from offline_summ.labelled import LabelledItem
from offline_summ.prompts import PromptLibrary, PromptSet, load_prompts
from offline_summ.protocols import itemized
from offline_summ.protocols.dialogue import Dialogue, together
from offline_summ.schemas import Tokens
from offline_summ.session import Session
from offline_summ.weights import default_home, ignore_progress
from offline_summ.weights_files import OnProgress, Progress

OnJudged = Callable[[int, int], None]

_TEXTS_AT_ONCE = 8
_LABELS: Mapping[Axis, str] = {"alignment": "sentences", "coverage": "key facts"}


@dataclass(frozen=True)
class JudgedLabels:
    """What a judge said about labelled items.

    Attributes:
        judged: axis to the items that were judged, in their order.
        failures: failure kind to the number of items that could not be judged; they take no part.
        tokens: token counts over all calls.
    """

    judged: Mapping[Axis, Sequence[Judged]]
    failures: Mapping[FailureKind, int] = field(default_factory=dict)
    tokens: Tokens = field(default_factory=Tokens)


@dataclass(frozen=True)
class CalibrationReport:
    """A calibration, and what is told about it.

    Attributes:
        calibration: the calibration.
        curves: axis and language to learning curve.
        labels: what it was fitted to.
        unfitted: axis to the reason why it has no scale.
    """

    calibration: Calibration
    curves: Mapping[tuple[Axis, str], Sequence[CurvePoint]]
    labels: JudgedLabels
    unfitted: Mapping[Axis, str] = field(default_factory=dict)


def calibrate_judge(
    model: str | Path | Judge | Engine | None,
    items: Sequence[LabelledItem],
    *,
    prompts: Path | None = None,
    home: Path | None = None,
    airgap: Airgap = "auto",
    on_progress: OnProgress = ignore_progress,
) -> CalibrationReport:
    """Load a judge, ask it about labelled items, and fit a calibration to its answers.

    Args:
        model: as for `SummarizationScorer`.
        items: the items.
        prompts: a folder of prompts that replace the shipped ones.
        home: folder with prepared weights; None is `weights.default_home()`.
        airgap: as for `SummarizationScorer`.
        on_progress: told about loading and judging, from any thread.

    Raises:
        UsageError: an axis has too few labels, or no axis can be fitted; see `calibration_fit`.
        JudgeError: the judge cannot be loaded, failed, or could judge no item.
    """
    for axis, what in _LABELS.items():
        if own := [item for item in items if item.axis == axis]:
            refuse_too_few(own, f"labelled {what}")
    library = load_prompts(prompts)
    engine = engine_of(judge_of(model, ()), None, home or default_home(), on_progress, airgap)

    def on_judged(done: int, total: int) -> None:
        on_progress(Progress("judging labelled items", done, total, None))

    async def work() -> JudgedLabels:
        words = {p.verdict_words(task) for p in library.languages.values() for task in ("claim", "question")}
        await session.start(lambda: [decision_grammar(each) for each in sorted(words)], "judging")
        return await judge_labels(engine, library, items, on_judged)

    with Session(engine, on_progress) as session:
        labels = session.run(work())
    return fit(labels, engine, library)


async def judge_labels(
    engine: Engine, prompts: PromptLibrary, items: Sequence[LabelledItem], on_judged: OnJudged
) -> JudgedLabels:
    """Ask a judge for the probability of each labelled item.

    Sentences are asked against their source, and key facts, as questions, against their summary.

    Args:
        engine: runs the judge; started.
        prompts: the prompts; an item without a language gets those of its source.
        items: the items.
        on_judged: told how many items are done, of how many.

    Raises:
        JudgeError: the engine failed, or gives no probabilities.
    """
    dialogue, limit = Dialogue(engine), asyncio.Semaphore(_TEXTS_AT_ONCE)
    failures: Counter[FailureKind] = Counter()
    judged: list[tuple[int, Axis, Judged]] = []
    done = 0

    async def judge(numbers: Sequence[int]) -> None:
        nonlocal done
        first = items[numbers[0]]
        chosen = prompts.choose(_known(first.language, prompts), first.source)
        texts = [items[number].text for number in numbers]
        async with limit:
            try:
                found = await _decide(dialogue, chosen, first, texts)
            except ExampleError as error:
                failures[error.kind] += len(numbers)
            else:
                for number, probability in zip(numbers, found, strict=True):
                    item = items[number]
                    entry = Judged(item.document, chosen.language, probability, item.label)
                    judged.append((number, item.axis, entry))
        done += len(numbers)
        on_judged(done, len(items))

    def text_of(number: int) -> tuple[Axis, str, str]:
        item = items[number]
        return item.axis, item.document, item.source if item.axis == "alignment" else item.summary

    groups = [list(group) for _, group in groupby(sorted(range(len(items)), key=text_of), key=text_of)]
    await together(*map(judge, groups))
    judged.sort(key=lambda each: each[0])
    axes: tuple[Axis, ...] = ("alignment", "coverage")
    by_axis = {axis: [entry for _, its, entry in judged if its == axis] for axis in axes}
    return JudgedLabels({axis: found for axis, found in by_axis.items() if found}, failures, dialogue.tokens)


def fit(labels: JudgedLabels, engine: Engine, prompts: PromptLibrary) -> CalibrationReport:
    """Fit a calibration to what a judge said about labelled items.

    Args:
        labels: what it said.
        engine: the engine that said it.
        prompts: the prompts it was asked with.

    Raises:
        UsageError: no axis can be fitted, see `calibration_fit.fit_scale`.
        JudgeError: no item could be judged.
    """
    if not labels.judged:
        kinds = ", ".join(f"{count} {kind}" for kind, count in labels.failures.items())
        raise JudgeError(f"No labelled item could be judged: {kinds}.", "Use a judge with a longer context.")
    axes: dict[Axis, dict[str, FittedScale]] = {}
    curves: dict[tuple[Axis, str], Sequence[CurvePoint]] = {}
    unfitted: dict[Axis, str] = {}
    for axis, judged in labels.judged.items():
        try:
            axes[axis] = fit_axis(judged)
        except UsageError as error:
            if len(labels.judged) == len(unfitted) + 1:
                raise UsageError(f"Axis {axis!r}: {error.message}", error.hint) from None
            unfitted[axis] = error.message
            continue
        for language in axes[axis]:
            own = [each for each in judged if language in ("all", each.language)]
            curves[axis, language] = learning_curve(own)
    calibration = Calibration(
        judge=engine.record.judge,
        weights_sha256=engine.record.weights_sha256,
        protocol="itemized",
        prompts_sha256={name: p.digest("itemized") for name, p in prompts.languages.items()},
        axes=axes,
    )
    return CalibrationReport(calibration, curves, labels, unfitted)


async def _decide(
    dialogue: Dialogue, prompts: PromptSet, first: LabelledItem, texts: Sequence[str]
) -> list[float]:
    if first.axis == "alignment":
        decided = await itemized.decide_claims(
            dialogue, prompts, source=first.source, claims=texts, scale=UNCALIBRATED
        )
    else:
        decided = await itemized.decide_questions(
            dialogue, prompts, summary=first.summary, questions=texts, scale=UNCALIBRATED
        )
    return [each.probability for each in decided]


def _known(language: str | None, prompts: PromptLibrary) -> str | None:
    return language if language in prompts.languages else None
