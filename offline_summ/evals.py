"""Runs a summarizer over many inputs and scores what it writes. Knows nothing of files."""

import asyncio
import inspect
import statistics
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from offline_summ.errors import UsageError
from offline_summ.loop import in_thread
from offline_summ.protocols.dialogue import together
from offline_summ.schemas import SummarizationResult
from offline_summ.scorer import SummarizationScorer

Target = Callable[[Any], Any]
"""A summarizer: takes an input and returns what `SummarizationScorer.run` takes as output; may be async."""

DEFAULT_CONCURRENCY = 32


@dataclass(frozen=True)
class EvalInput:
    """One input with what belongs to it.

    Attributes:
        input: what the target is called with.
        id: id of its results.
        questions: questions to ask of its summary instead of drawn ones.
    """

    input: Any
    id: str | None = None
    questions: Sequence[str] | None = None


@dataclass(frozen=True)
class EvalItem:
    """What became of one input.

    Attributes:
        number: its place in the data, from 1.
        input: the input.
        output: what the target returned; None if it raised.
        results: name of a scorer to its result; empty if the target raised.
        error: what the target raised.
    """

    number: int
    input: Any
    output: Any = None
    results: Mapping[str, SummarizationResult] = field(default_factory=dict)
    error: Exception | None = None


@dataclass(frozen=True)
class EvalsOutcome:
    """What all inputs came to.

    Attributes:
        scores: name of a scorer to the mean of its scores; None if it scored nothing.
        items: every input, in the order of the data.
        scored: name of a scorer to the number of outputs that it scored. The others, and those of inputs
            whose target raised, are in no mean.
    """

    scores: Mapping[str, float | None]
    items: Sequence[EvalItem]
    scored: Mapping[str, int]


OnItemComplete = Callable[[EvalItem], Awaitable[None] | None]
Scorers = SummarizationScorer | Sequence[SummarizationScorer] | Mapping[str, SummarizationScorer]


def run_evals(
    target: Target,
    scorers: Scorers,
    data: Iterable[Any],
    on_item_complete: OnItemComplete | None = None,
    concurrency: int = DEFAULT_CONCURRENCY,
) -> EvalsOutcome:
    """Call a summarizer on each input, and score each output with each scorer.

    Args:
        target: the summarizer, a function or a coroutine function. What it raises costs its own input only.
        scorers: one scorer, several (named by their judges), or names to scorers.
        data: inputs for the target, each as it is or an `EvalInput`. Its source is found in the input as
            `SummarizationScorer.run` finds it.
        on_item_complete: called with each input that is done, in the order in which they are; may be async.
            What it raises ends the run.
        concurrency: most inputs at once. A target that is no coroutine function is called in threads.

    Raises:
        UsageError: an argument is not as above, or this is called inside an event loop: there, await
            `arun_evals`.
        JudgeError: a judge cannot be loaded.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise UsageError("run_evals was called inside an event loop.", "Use `await arun_evals(...)` there.")
    return asyncio.run(arun_evals(target, scorers, data, on_item_complete, concurrency))


async def arun_evals(
    target: Target,
    scorers: Scorers,
    data: Iterable[Any],
    on_item_complete: OnItemComplete | None = None,
    concurrency: int = DEFAULT_CONCURRENCY,
) -> EvalsOutcome:
    """Asynchronous form of `run_evals`."""
    if not callable(target):
        raise UsageError(f"target is of type {type(target).__name__}.", "Give a function.")
    if type(concurrency) is not int or concurrency < 1:
        raise UsageError(f"concurrency is {concurrency!r}.", "Give a positive whole number.")
    named = _named(scorers)
    items: dict[int, EvalItem] = {}
    inputs, turn = enumerate(data, start=1), asyncio.Lock()

    async def work() -> None:
        while True:
            async with turn:  # in a thread: what the inputs come from may block
                number, given = await asyncio.to_thread(next, inputs, (0, None))
            if not number:
                return
            given = given if isinstance(given, EvalInput) else EvalInput(given)
            item = items[number] = await _item(target, named, number, given)
            if on_item_complete is not None:
                told = on_item_complete(item)
                if inspect.isawaitable(told):
                    await told

    await together(*(work() for _ in range(concurrency)))
    ordered = [items[number] for number in sorted(items)]
    scores: dict[str, list[float]] = {name: [] for name in named}
    for item in ordered:
        for name, result in item.results.items():
            if result.score is not None:
                scores[name].append(result.score)
    return EvalsOutcome(
        scores={name: statistics.fmean(own) if own else None for name, own in scores.items()},
        items=ordered,
        scored={name: len(own) for name, own in scores.items()},
    )


async def _item(
    target: Target, scorers: Mapping[str, SummarizationScorer], number: int, given: EvalInput
) -> EvalItem:
    try:
        if inspect.iscoroutinefunction(target):
            output = await target(given.input)
        else:
            output = await in_thread(target, given.input)
            if inspect.isawaitable(output):  # an object or a lambda that returns a coroutine
                output = await output
    except Exception as error:  # noqa: BLE001 - the target is the user's, and costs its own row
        return EvalItem(number, given.input, error=error)
    results = await asyncio.gather(
        *(
            scorer.arun(given.input, output, id=given.id, questions=given.questions)
            for scorer in scorers.values()
        )
    )
    return EvalItem(number, given.input, output, dict(zip(scorers, results, strict=True)))


def _named(scorers: Scorers) -> dict[str, SummarizationScorer]:
    given = [scorers] if isinstance(scorers, SummarizationScorer) else scorers
    listed = list(given.values()) if isinstance(given, Mapping) else list(given)
    if not listed:
        raise UsageError("There is no scorer.", "Give a SummarizationScorer, a list, or a dict of names.")
    for scorer in listed:
        if not isinstance(scorer, SummarizationScorer):
            raise UsageError(f"A scorer is of type {type(scorer).__name__}.", "Give a SummarizationScorer.")
    if isinstance(given, Mapping):
        return dict(given)
    names = [scorer.judge for scorer in listed]
    if len(set(names)) < len(names):
        raise UsageError(f"Two scorers have judge {max(names, key=names.count)!r}.", "Give a dict of names.")
    return dict(zip(names, listed, strict=True))
