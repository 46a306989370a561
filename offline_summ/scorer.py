"""`SummarizationScorer`: a judge and options; one example in, one result out.

The one place that catches broadly: whatever goes wrong with an example becomes its failure. Knows nothing of
files and the command line.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from offline_summ import messages
from offline_summ.calibration import Axis
from offline_summ.calibration_choice import CalibrationChoice
from offline_summ.engines.base import SEED, Engine, Reply
from offline_summ.engines.choice import engine_of, judge_of
from offline_summ.errors import ExampleError, OfflineSummError, UsageError
from offline_summ.example import check, example_of
from offline_summ.judges import GrammarBackend, Judge
from offline_summ.options import SummarizationOptions, checked_questions
from offline_summ.prompts import PromptLibrary, PromptSet, load_prompts
from offline_summ.protocols import itemized, joint, reason
from offline_summ.protocols.base import Judgement, Task
from offline_summ.protocols.dialogue import Dialogue
from offline_summ.protocols.memo import Memo
from offline_summ.schemas import (
    AnalyzeStepResult,
    Example,
    Failure,
    Note,
    PreprocessStepResult,
    Protocol,
    RunRecord,
    Step,
    SummarizationResult,
)
from offline_summ.session import Session
from offline_summ.weights import default_home, ignore_progress
from offline_summ.weights_files import OnProgress


@dataclass(frozen=True)
class _Outcome:
    judgement: Judgement
    notes: tuple[Note, ...]
    reason: str | None


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
        judge = judge_of(model, models)
        own = judge.protocol if isinstance(judge, Judge) else "joint"
        self._protocol: Protocol = self._options.protocol or own
        _refuse_what_would_be_ignored(self._options, self._protocol)
        self._calibration = CalibrationChoice(
            self._options.calibration, protocol=self._protocol, prompts_sha256=self._prompts_used()
        )
        self._drawn = Memo[itemized.DrawnQuestions]()
        engine = engine_of(judge, grammar_backend, home or default_home(), on_progress)
        self._session = Session(engine, on_progress)

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
        self._session.run(self._start())

    def score(
        self,
        source: str | Sequence[str],
        summary: str,
        *,
        id: str | None = None,
        questions: Sequence[str] | None = None,
    ) -> SummarizationResult:
        """Score one summary.

        Args:
            source: the source, or several context texts.
            summary: the summary.
            id: id of the example, repeated in the result.
            questions: closed questions, or facts, to ask of this summary; they beat those of the options.

        Returns:
            The result; what is wrong with this example is its `failure`, not an exception.

        Raises:
            UsageError: the questions are no texts, too many, or asked for without coverage.
            JudgeError: the judge cannot be loaded.
        """
        return self._session.run(self._score_text(source, summary, id, questions))

    async def ascore(
        self,
        source: str | Sequence[str],
        summary: str,
        *,
        id: str | None = None,
        questions: Sequence[str] | None = None,
    ) -> SummarizationResult:
        """Asynchronous form of `score`."""
        return await self._session.run_from_loop(self._score_text(source, summary, id, questions))

    def run(
        self, input: Any, output: Any, *, id: str | None = None, questions: Sequence[str] | None = None
    ) -> SummarizationResult:
        """Score the summary that a run produced.

        Args:
            input: what the run was given: a string, chat messages, or an object that holds them.
            output: what it produced, in the same shapes. The summary is its last assistant message with text.
            id: id of the example, repeated in the result.
            questions: closed questions, or facts, to ask of this summary; they beat those of the options.

        Returns:
            The result; what is wrong with this example is its `failure`, not an exception.

        Raises:
            UsageError: the source extractor or `source` gives something that is no text, or the questions are
                no texts, too many, or asked for without coverage.
            JudgeError: the judge cannot be loaded.
        """
        return self._session.run(self._score_run(input, output, id, questions))

    async def arun(
        self, input: Any, output: Any, *, id: str | None = None, questions: Sequence[str] | None = None
    ) -> SummarizationResult:
        """Asynchronous form of `run`."""
        return await self._session.run_from_loop(self._score_run(input, output, id, questions))

    def close(self) -> None:
        """Stop the judge. A later score loads it again."""
        self._session.close()

    def __enter__(self) -> "SummarizationScorer":
        """Return the scorer."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop the judge; at once if the program is being interrupted."""
        self._session.close(interrupted=kind is not None and not issubclass(kind, Exception))

    async def __aenter__(self) -> "SummarizationScorer":
        """Return the scorer."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the judge."""
        await asyncio.to_thread(self.close)

    async def _start(self) -> None:
        def replies() -> Sequence[Reply]:
            engine = self._session.engine.record
            self._calibration.settle(engine.judge, engine.weights_sha256)
            return self._replies()

        await self._session.start(replies, "scoring")

    def _replies(self) -> Sequence[Reply]:
        options = self._options
        worded = reason.replies() if options.reason == "judge" else ()
        if self._protocol == "joint":
            given = None if options.questions is None else len(options.questions)
            asked = joint.replies(
                axes=options.axes, max_questions=options.max_questions, given_questions=given
            )
        else:
            languages = self._prompts.languages
            asked = itemized.replies(
                axes=options.axes,
                max_questions=options.max_questions,
                prompts=[languages[options.language]] if options.language else [*languages.values()],
                drawn=options.questions is None,
                reasons=options.reasons or "all",
            )
        return (*asked, *worded)

    def _prompts_used(self) -> dict[str, str]:
        languages = self._prompts.languages
        used = [self._options.language] if self._options.language is not None else [*languages]
        return {language: languages[language].digest("itemized") for language in used}

    async def _score_run(
        self, input: Any, output: Any, id: str | None, questions: Sequence[str] | None
    ) -> SummarizationResult:
        # In a thread: an extractor of the user's may block, or score something itself.
        source = await asyncio.to_thread(
            messages.source_of,
            input,
            output,
            source=self._options.source,
            extractor=self._options.source_extractor,
        )
        return await self._score(example_of(id, source, messages.summary_of(output)), questions)

    async def _score_text(
        self, source: str | Sequence[str], summary: str, id: str | None, questions: Sequence[str] | None
    ) -> SummarizationResult:
        joined = messages.source_of(None, None, source=source)
        return await self._score(example_of(id, joined, messages.text_of(summary)), questions)

    async def _score(self, example: Example, questions: Sequence[str] | None) -> SummarizationResult:
        options, dialogue, started = self._options, Dialogue(self._session.engine), time.monotonic()
        prompts = self._prompts.choose(options.language, example.source)
        asked = self._questions(questions)
        outcome: _Outcome | Failure | None = None
        try:
            check(example, self._session.engine.context_length)
        except ExampleError as error:
            outcome = Failure(kind=error.kind, message=str(error), step="input")
        if outcome is None:
            await self._start()
            started, limit = time.monotonic(), asyncio.timeout(options.timeout)
            try:
                async with limit:
                    outcome = await self._judge(example, asked, dialogue, prompts)
            except Exception as error:
                if isinstance(error, UsageError):
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
            preprocess_step_result=PreprocessStepResult(
                alignment=outcome.judgement.claims,
                questions=tuple(q.question for q in outcome.judgement.questions),
                dropped_questions=outcome.judgement.dropped,
            ),
            analyze_step_result=AnalyzeStepResult(coverage=outcome.judgement.questions),
            notes=outcome.notes,
            run=record,
        )

    def _questions(self, questions: Sequence[str] | None) -> tuple[str, ...] | None:
        """Return what is asked instead of drawn questions, if anything is."""
        if questions is None:
            return None if self._options.questions is None else checked_questions(self._options.questions)
        if self._options.axes == "alignment":
            raise UsageError("questions are given, but axes is 'alignment'.", "Leave one of them out.")
        return checked_questions(questions)

    async def _judge(
        self, example: Example, questions: tuple[str, ...] | None, dialogue: Dialogue, prompts: PromptSet
    ) -> _Outcome:
        options = self._options
        axes: tuple[Axis, ...] = ("alignment", "coverage") if options.axes == "both" else (options.axes,)
        task = Task(
            source=example.source,
            summary=example.summary,
            axes=options.axes,
            max_questions=options.max_questions,
            questions=questions,
            reasons=options.reasons or "all",
            scales=self._calibration.scales(axes, prompts.language),
        )
        if self._protocol == "joint":
            judgement = await joint.judge(dialogue, prompts, task)
        else:
            judgement = await itemized.judge(dialogue, prompts, task, self._drawn)
        undefined: dict[Note, bool] = {
            "no_claims": options.axes != "coverage" and not judgement.claims,
            "no_questions": options.axes != "alignment" and not judgement.questions,
            "uncalibrated": self._protocol != "joint"
            and not self._calibration.covers(axes, prompts.language),
        }
        notes = (*(note for note, holds in undefined.items() if holds), *judgement.notes)
        worded, figures = None, reason.figures(judgement, axes=options.axes, scale=options.scale)
        if options.reason == "judge":
            worded, more = await reason.word(dialogue, prompts, figures)
            notes = (*notes, *more)
        elif options.reason == "composed":
            worded = reason.compose(prompts, figures)
        return _Outcome(judgement, tuple(dict.fromkeys(notes)), worded)

    def _record(self, dialogue: Dialogue, prompts: PromptSet, seconds: float) -> RunRecord:
        engine = self._session.engine.record
        return RunRecord(
            judge=engine.judge,
            weights_sha256=engine.weights_sha256,
            prompts_sha256=prompts.sha256,
            protocol=self._protocol,
            calibration=self._calibration.used,
            language=prompts.language,
            engine=engine.engine,
            dtype=engine.dtype,
            grammar_backend=engine.grammar_backend,
            versions={"offline-summ": metadata.version("offline-summ"), **engine.versions},
            seed=SEED,
            calls=len(dialogue.completions),
            tokens=dialogue.tokens,
            seconds=round(seconds, 3),
        )


def _failure_of(error: Exception, step: Step, exceeded: float | None) -> Failure:
    if exceeded is not None:
        message = f"The example took longer than {exceeded:g} seconds."
        return Failure(kind="timeout", message=message, step=step)
    if isinstance(error, ExampleError):
        return Failure(kind=error.kind, message=str(error), step=step)
    if isinstance(error, OfflineSummError):
        return Failure(kind="judge_error", message=str(error), step=step)
    # Only the type: the text of a foreign exception may quote a document.
    return Failure(kind="judge_error", message=f"The judge failed with {type(error).__name__}.", step=step)


def _refuse_what_would_be_ignored(options: SummarizationOptions, protocol: Protocol) -> None:
    if protocol == "joint":
        calibration = None if options.calibration == "none" else options.calibration
        for name, value in (("reasons", options.reasons), ("calibration", calibration)):
            if value is not None:
                own = "" if options.protocol else ", which is this judge's own,"
                raise UsageError(
                    f"{name} is given, but protocol 'joint'{own} has no use for it.",
                    "Choose protocol 'itemized', or leave it out.",
                )
