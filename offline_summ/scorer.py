"""`SummarizationScorer`: a judge and options; one example in, one result out.

The one place that catches broadly: whatever goes wrong with an example becomes its failure. Knows nothing of
files and the command line.
"""

import asyncio
import atexit
import contextlib
import threading
import time
import unicodedata
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar, get_args

from offline_summ import messages, scoring
from offline_summ.engines.base import SEED, Engine, Reply
from offline_summ.engines.vllm import VLLMEngine
from offline_summ.errors import ExampleError, OfflineSummError, UsageError
from offline_summ.judges import GrammarBackend, Judge, load_registry, resolve_judge
from offline_summ.loop import LoopThread
from offline_summ.options import SummarizationOptions
from offline_summ.prompts import PromptLibrary, PromptSet, load_prompts
from offline_summ.protocols import joint
from offline_summ.protocols.dialogue import Dialogue
from offline_summ.schemas import (
    AnalyzeStepResult,
    Example,
    Failure,
    Note,
    PreprocessStepResult,
    RunRecord,
    Step,
    SummarizationResult,
)
from offline_summ.weights import default_home, ignore_progress, open_judge
from offline_summ.weights_files import OnProgress, Progress

T = TypeVar("T")

_QUOTED_IN_REASON = 3
_CLOSE_TIMEOUT_S = 10.0
_INTERRUPT_TIMEOUT_S = 1.0
# No tokenizer packs more characters of prose into a token on average; far longer texts need no counting.
_MAX_CHARACTERS_PER_TOKEN = 50


class SummarizationScorer:
    """Scores summaries against their sources with one judge.

    The judge is loaded by the first score, or by `start`, and stays loaded until `close`. A scorer may be
    used as a context manager, from any thread, and from synchronous and asynchronous code alike.

    Args:
        model: name of a judge in models.toml, a folder with a model, a `Judge`, or an engine; None is the
            default judge.
        options: how to score.
        models: files in the format of models.toml with judges of your own.
        home: folder with prepared weights, compiled grammars and logs; None is `weights.default_home()`.
        grammar_backend: what holds the judge to its grammars inside vLLM; None is the judge's own.
        on_progress: told about the checking of weights and the loading of the judge, from any thread.

    Raises:
        UsageError: the judge is unknown, a prompt is faulty, or the language has no prompts.
        WeightsError: a model folder lacks something that a judge needs.
    """

    def __init__(
        self,
        model: str | Path | Judge | Engine | None = None,
        options: SummarizationOptions | None = None,
        *,
        models: Sequence[Path] = (),
        home: Path | None = None,
        grammar_backend: GrammarBackend | None = None,
        on_progress: OnProgress = ignore_progress,
    ) -> None:
        """Check everything that can be checked before a judge loads."""
        self._options = SummarizationOptions() if options is None else options
        if not isinstance(self._options, SummarizationOptions):
            raise UsageError(f"options is a {type(options).__name__}.", "Give a SummarizationOptions.")
        folder = self._options.prompts
        self._prompts: PromptLibrary = load_prompts(None if folder is None else Path(folder))
        if self._options.language is not None:
            self._prompts.choose(self._options.language, "")
        self._engine: Engine = _engine_of(model, models, grammar_backend, home or default_home(), on_progress)
        self._on_progress = on_progress
        self._started = False
        self._start_lock = asyncio.Lock()
        self._loop = LoopThread()
        self._close_lock = threading.Lock()
        # Stops the judge at the end of the program for those who forget to.
        self._finalizer = weakref.finalize(
            self, _shut_down, self._loop, self._engine, self._close_lock, _CLOSE_TIMEOUT_S
        )

    @property
    def options(self) -> SummarizationOptions:
        """How this scorer scores."""
        return self._options

    def start(self) -> None:
        """Load the judge now instead of with the first score.

        Raises:
            WeightsError: its weights are not on this machine, or not what they should be.
            JudgeError: it cannot be loaded.
        """
        self._loop.run(self._start())

    def score(
        self, source: str | Sequence[str], summary: str, *, id: str | None = None
    ) -> SummarizationResult:
        """Score one summary.

        Args:
            source: the source, or several context texts.
            summary: the summary.
            id: id of the example, repeated in the result.

        Returns:
            The result; what is wrong with this example is its `failure`, not an exception.

        Raises:
            JudgeError: the judge cannot be loaded.
        """
        return self._loop.run(self._score_text(source, summary, id))

    async def ascore(
        self, source: str | Sequence[str], summary: str, *, id: str | None = None
    ) -> SummarizationResult:
        """Asynchronous form of `score`."""
        return await self._loop.run_from_loop(self._score_text(source, summary, id))

    def run(self, input: Any, output: Any, *, id: str | None = None) -> SummarizationResult:
        """Score the summary that a run produced.

        Args:
            input: what the run was given: a string, chat messages, or an object that holds them.
            output: what it produced, in the same shapes. The summary is its last assistant message with text.
            id: id of the example, repeated in the result.

        Returns:
            The result; what is wrong with this example is its `failure`, not an exception.

        Raises:
            UsageError: the source extractor or `source` gives something that is no text.
            JudgeError: the judge cannot be loaded.
        """
        return self._loop.run(self._score_run(input, output, id))

    async def arun(self, input: Any, output: Any, *, id: str | None = None) -> SummarizationResult:
        """Asynchronous form of `run`."""
        return await self._loop.run_from_loop(self._score_run(input, output, id))

    def close(self) -> None:
        """Stop the judge. A later score loads it again."""
        self._close(_CLOSE_TIMEOUT_S)

    def _close(self, timeout: float) -> None:
        self._started = False
        atexit.unregister(self._finalizer)
        _shut_down(self._loop, self._engine, self._close_lock, timeout)

    def __enter__(self) -> "SummarizationScorer":
        """Return the scorer."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop the judge; at once if the program is being interrupted."""
        interrupted = kind is not None and not issubclass(kind, Exception)
        self._close(_INTERRUPT_TIMEOUT_S if interrupted else _CLOSE_TIMEOUT_S)

    async def __aenter__(self) -> "SummarizationScorer":
        """Return the scorer."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the judge."""
        await asyncio.to_thread(self.close)

    async def _start(self) -> None:
        async with self._start_lock:
            if not self._started:
                self._on_progress(Progress(f"loading judge {self._engine.record.judge!r}", 0, None, None))
                await self._engine.start()
                # Registered after the engine's own imports, so that it runs before theirs: the exit handler
                # of multiprocessing waits for the engine's processes.
                atexit.register(self._finalizer)
                self._on_progress(Progress("preparing grammars", 0, None, None))
                await self._engine.warm_up(self._replies())
                self._started = True
                self._on_progress(Progress("scoring", 0, None, None))

    def _replies(self) -> Sequence[Reply]:
        options = self._options
        return joint.replies(
            axes=options.axes, max_questions=options.max_questions, reason=options.reason == "judge"
        )

    async def _score_run(self, input: Any, output: Any, id: str | None) -> SummarizationResult:
        # In a thread: an extractor of the user's may block, or score something itself.
        source = await asyncio.to_thread(
            messages.source_of,
            input,
            output,
            source=self._options.source,
            extractor=self._options.source_extractor,
        )
        return await self._score(_example(id, source, messages.summary_of(output)))

    async def _score_text(
        self, source: str | Sequence[str], summary: str, id: str | None
    ) -> SummarizationResult:
        joined = messages.source_of(None, None, source=source)
        return await self._score(_example(id, joined, messages.text_of(summary)))

    async def _score(self, example: Example) -> SummarizationResult:
        options, dialogue, started = self._options, Dialogue(self._engine), time.monotonic()
        prompts = self._prompts.choose(options.language, example.source)
        outcome: _Outcome | Failure
        try:
            _check(example, self._engine.context_length)
            await self._start()
            started = time.monotonic()
            async with asyncio.timeout(options.timeout) as limit:
                outcome = await _judge(example, dialogue, prompts, options)
        except UsageError:
            raise
        except ExampleError as error:
            outcome = Failure(kind=error.kind, message=str(error), step=dialogue.step)
        except Exception as error:
            if dialogue.step == "input":
                raise
            outcome = _failure_of(error, dialogue.step, options.timeout if limit.expired() else None)
        record = self._record(dialogue, prompts, time.monotonic() - started)
        if isinstance(outcome, Failure):
            return SummarizationResult(
                id=example.id,
                status="failed",
                axes=options.axes,
                scale=options.scale,
                failure=outcome,
                run=record,
            )
        return SummarizationResult(
            id=example.id,
            status="scored",
            axes=options.axes,
            scale=options.scale,
            reason=outcome.reason,
            preprocess_step_result=outcome.preprocess,
            analyze_step_result=outcome.analyze,
            notes=outcome.notes,
            run=record,
        )

    def _record(self, dialogue: Dialogue, prompts: PromptSet, seconds: float) -> RunRecord:
        engine = self._engine.record
        return RunRecord(
            judge=engine.judge,
            weights_sha256=engine.weights_sha256,
            prompts_sha256=prompts.sha256,
            protocol=self._options.protocol,
            language=prompts.language,
            engine=engine.engine,
            grammar_backend=engine.grammar_backend,
            versions={"offline-summ": metadata.version("offline-summ"), **engine.versions},
            seed=SEED,
            calls=len(dialogue.completions),
            tokens=dialogue.tokens,
            seconds=round(seconds, 3),
        )


def _failure_of(error: Exception, step: Step, exceeded: float | None) -> Failure:
    if exceeded is not None and isinstance(error, TimeoutError):
        message = f"The example took longer than {exceeded:g} seconds."
        return Failure(kind="timeout", message=message, step=step)
    if isinstance(error, OfflineSummError):
        return Failure(kind="judge_error", message=str(error), step=step)
    # Only the type: the text of a foreign exception may quote a document.
    return Failure(kind="judge_error", message=f"The judge failed with {type(error).__name__}.", step=step)


@dataclass(frozen=True)
class _Outcome:
    preprocess: PreprocessStepResult
    analyze: AnalyzeStepResult
    notes: tuple[Note, ...]
    reason: str | None


async def _judge(
    example: Example, dialogue: Dialogue, prompts: PromptSet, options: SummarizationOptions
) -> _Outcome:
    claims, questions, notes = await joint.judge_source(
        dialogue,
        prompts,
        source=example.source,
        summary=example.summary,
        axes=options.axes,
        max_questions=options.max_questions,
    )
    coverage, notes_on_coverage = await joint.judge_coverage(
        dialogue, prompts, summary=example.summary, questions=questions
    )
    undefined: dict[Note, bool] = {
        "no_claims": options.axes != "coverage" and not claims,
        "no_questions": options.axes != "alignment" and not questions,
    }
    outcome = _Outcome(
        preprocess=PreprocessStepResult(alignment=claims, questions=questions),
        analyze=AnalyzeStepResult(coverage=coverage),
        notes=_each_once(*(note for note, holds in undefined.items() if holds), *notes, *notes_on_coverage),
        reason=None,
    )
    if options.reason == "none":
        return outcome
    figures = _figures(outcome, options)
    if options.reason == "judge":
        reason, more_notes = await joint.word_reason(dialogue, prompts, figures)
        return replace(outcome, reason=reason, notes=_each_once(*outcome.notes, *more_notes))
    return replace(outcome, reason=prompts.render_reason(**figures, quoted=_QUOTED_IN_REASON))


def _each_once(*notes: Note) -> tuple[Note, ...]:
    return tuple(dict.fromkeys(notes))


def _figures(outcome: _Outcome, options: SummarizationOptions) -> dict[str, Any]:
    claims, answers = outcome.preprocess.alignment, outcome.analyze.coverage
    supported, answered = [c.supported for c in claims], [a.answered for a in answers]
    scores = scoring.score(supported, answered, axes=options.axes, scale=options.scale)

    def axis(share: float | None, verdicts: list[bool]) -> dict[str, float] | None:
        return None if share is None else {"share": share, "true": sum(verdicts), "all": len(verdicts)}

    return {
        "score": scores.value,
        "scale": options.scale,
        "alignment": axis(scores.alignment, supported),
        "coverage": axis(scores.coverage, answered),
        "deciding_axis": scores.deciding_axis,
        "unsupported": [_one_line(c.claim) for c in claims if not c.supported],
        "unanswered": [_one_line(a.question) for a in answers if not a.answered],
    }


def _example(id: str | None, source: str, summary: str) -> Example:
    if id is not None and (not isinstance(id, str) or any("\ud800" <= c <= "\udfff" for c in id)):
        raise UsageError(f"id is {id!r}.", "Give a string of valid characters, or None.")
    return Example(id=id, source=source, summary=summary)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _check(example: Example, context_length: int | None) -> None:
    if _is_blank(example.source):
        raise ExampleError("empty_source", "The source holds no text.", "Give a source with text.")
    if _is_blank(example.summary):
        raise ExampleError("empty_summary", "The summary holds no text.", "Give a summary with text.")
    characters = len(example.source) + len(example.summary)
    if context_length is not None and characters > _MAX_CHARACTERS_PER_TOKEN * context_length:
        raise ExampleError(
            "source_too_long",
            f"The texts have {characters} characters, too many for the judge's {context_length} tokens.",
            "Shorten the source, or use a judge with a longer context.",
        )


def _is_blank(text: str) -> bool:
    """Whether `text` has nothing but spaces, control and format characters, and replaced surrogates."""
    return not any(unicodedata.category(c)[0] in "LMNPS" and c != "\ufffd" for c in text)


def _engine_of(
    model: str | Path | Judge | Engine | None,
    models: Sequence[Path],
    grammar_backend: GrammarBackend | None,
    home: Path,
    on_progress: OnProgress,
) -> Engine:
    if grammar_backend is not None and grammar_backend not in get_args(GrammarBackend):
        raise UsageError(
            f"grammar_backend is {grammar_backend!r}.",
            f"Choose one of {', '.join(get_args(GrammarBackend))}.",
        )
    if model is not None and not isinstance(model, str | Path | Judge):
        if not hasattr(model, "generate"):
            raise UsageError(
                f"model is of type {type(model).__name__}.", "Give a judge's name, a folder, or an engine."
            )
        if grammar_backend is not None:
            raise UsageError(
                f"grammar_backend is {grammar_backend!r}, but the model is an engine already.",
                "Leave it out, or give a judge.",
            )
        return model
    if not isinstance(model, Judge):
        registry = load_registry(*models)
        model = resolve_judge(str(model), registry) if model is not None else registry.get(registry.default)
    if grammar_backend is not None:
        model = model.model_copy(update={"grammar_backend": grammar_backend})
    return VLLMEngine(
        model,
        partial(open_judge, model, home, on_progress),
        log_folder=home / "logs",
        grammar_folder=home / "grammars",
    )


def _shut_down(loop: LoopThread, engine: Engine, lock: threading.Lock, timeout: float) -> None:
    with lock:
        if not loop.is_running:
            return
        closed = loop.submit(engine.close())
        try:
            closed.result(timeout)
        except TimeoutError:
            # Without its processes an engine that is still loading gives up, and the loop gets to close it.
            engine.kill()
            with contextlib.suppress(TimeoutError):
                closed.result(_INTERRUPT_TIMEOUT_S)
        loop.stop(timeout=1.0)
