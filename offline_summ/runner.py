"""One example to one result: asks, times, tries again after a crash, and records.

The one place that catches broadly: whatever goes wrong with an example becomes its failure. Knows nothing of
files, of many examples, and of the command line.
"""

import asyncio
import contextlib
import functools
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from offline_summ.airgap import process_network
from offline_summ.calibration import Axis
from offline_summ.calibration_choice import CalibrationChoice
from offline_summ.engines.base import SEED, Asked, Reply
from offline_summ.engines.shared import SharedEngine
from offline_summ.errors import ExampleError, JudgeStoppedError, OfflineSummError, UsageError
from offline_summ.example import check
from offline_summ.options import SummarizationOptions, checked_questions
from offline_summ.prompts import PromptLibrary, PromptSet
from offline_summ.protocols import itemized, joint, reason
from offline_summ.protocols.base import Judgement, Task
from offline_summ.protocols.dialogue import Dialogue
from offline_summ.protocols.drawn import DrawnQuestions
from offline_summ.protocols.memo import Memo
from offline_summ.redaction import redacted
from offline_summ.schemas import (
    AnalyzeStepResult,
    Example,
    Failure,
    InputRow,
    Note,
    PreprocessStepResult,
    Protocol,
    RunRecord,
    Step,
    SummarizationResult,
)
from offline_summ.session import Session

_ATTEMPTS = 3


@dataclass(frozen=True)
class _Outcome:
    judgement: Judgement
    notes: tuple[Note, ...]
    reason: str | None


class ExampleRunner:
    """Scores one example at a time, or many at once, with one judge and one set of options.

    Args:
        session: the judge.
        options: how to score.
        prompts: the prompts.
        protocol: how the judge is asked.
        calibration: what turns probabilities into verdicts.
    """

    def __init__(
        self,
        session: Session,
        options: SummarizationOptions,
        prompts: PromptLibrary,
        protocol: Protocol,
        calibration: CalibrationChoice,
    ) -> None:
        """Begin with nothing drawn."""
        self._session = session
        self._options = options
        self._prompts = prompts
        self._protocol = protocol
        self._calibration = calibration
        self._drawn = Memo[DrawnQuestions]()

    async def start(self) -> None:
        """Load the judge, unless it is loaded.

        Raises:
            WeightsError, JudgeError, UsageError: as `Session.start` and `CalibrationChoice.settle`.
        """

        def replies() -> Sequence[Reply]:
            engine = self._session.engine.record
            self._calibration.settle(engine.judge, engine.weights_sha256)
            return self._replies()

        await self._session.start(replies, "scoring")

    async def score(
        self,
        example: Example,
        questions: tuple[str, ...] | None,
        *,
        engine: SharedEngine | None = None,
        row: InputRow | None = None,
    ) -> SummarizationResult:
        """Score one example; an example on its way when the judge crashed is tried again.

        Args:
            example: the example.
            questions: the questions to ask instead of drawn ones; None draws them.
            engine: asks the session's engine for many examples at once; None asks it directly.
            row: where the example stands in its run.

        Raises:
            UsageError: a prompt fails.
            WeightsError, JudgeError: the judge cannot be loaded.
        """
        prompts = self._prompts.choose(self._options.language, example.source)
        try:
            check(example, self._session.engine.context_length)
        except ExampleError as error:
            failure = Failure(kind=error.kind, message=str(error), step="input")
            return self.failed(failure, id=example.id, row=row, source=example.source)
        asked: Asked = self._session.engine if engine is None else engine
        for attempt in range(_ATTEMPTS):
            # The last time alone, so that an example that crashes the judge takes no other with it.
            last = attempt + 1 == _ATTEMPTS
            async with self._session.alone if last else contextlib.nullcontext():
                await self.start()
                generation = self._session.generation
                dialogue, started = Dialogue(asked), time.monotonic()
                try:
                    outcome = await self._attempt(example, questions, dialogue, prompts)
                    break
                except JudgeStoppedError as error:
                    outcome = _failure_of(error, dialogue.step, None)
                    await self._session.give_up(generation)
        seconds = time.monotonic() - started
        if not isinstance(outcome, _Outcome):
            return self._failed(outcome, example.id, row, self._record(dialogue, prompts, seconds))
        self._session.proven()
        result = SummarizationResult(
            id=example.id,
            status="scored",
            axes=self._options.axes,
            scale=self._options.scale,
            reason=outcome.reason,
            preprocess_step_result=PreprocessStepResult(
                alignment=outcome.judgement.claims,
                questions=tuple(q.question for q in outcome.judgement.questions),
                dropped_questions=outcome.judgement.dropped,
            ),
            analyze_step_result=AnalyzeStepResult(coverage=outcome.judgement.questions),
            notes=outcome.notes,
            input=row,
            run=self._record(dialogue, prompts, seconds),
        )
        return redacted(result) if self._options.redact else result

    def questions(self, questions: Sequence[str] | None) -> tuple[str, ...] | None:
        """Return what is asked instead of drawn questions: those of an example, else those of the options.

        Raises:
            UsageError: they are no texts, too many, or asked for without coverage.
        """
        if questions is None:
            return None if self._options.questions is None else checked_questions(self._options.questions)
        if self._options.axes == "alignment":
            raise UsageError("questions are given, but axes is 'alignment'.", "Leave one of them out.")
        return checked_questions(questions)

    def settings_sha256(self) -> str:
        """Return the digest of all that a score depends on but the texts; the judge must be loaded."""
        options, engine = self._options, self._session.engine.record
        languages = self._prompts.languages
        used = sorted(languages) if options.language is None else [options.language]
        settings: dict[str, Any] = {
            "judge": [engine.judge, engine.engine, engine.weights_sha256, engine.dtype],
            "grammar_backend": engine.grammar_backend,
            "prompts": {language: languages[language].sha256 for language in used},
            "protocol": self._protocol,
            "calibration": self._calibration.used and self._calibration.used.sha256,
            "options": [options.axes, options.scale, options.max_questions, options.reasons, options.reason],
            "questions": options.questions and list(options.questions),
        }
        if options.redact:
            settings["redact"] = True
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    async def remember_questions(self, source: str, result: SummarizationResult) -> None:
        """Ask further summaries of a source the questions that one of it was asked in an earlier run."""
        if self.draws_questions and result.failure is None and "redacted" not in result.notes:
            prompts = self._prompts.choose(self._options.language, source)
            key = itemized.questions_key(
                prompts, self._task(Example(source=source, summary=""), None, prompts)
            )
            self._drawn.put(key, DrawnQuestions.of(result))

    @property
    def draws_questions(self) -> bool:
        """Whether every summary of a source is asked the same drawn questions."""
        options = self._options
        return self._protocol == "itemized" and options.axes != "alignment" and options.questions is None

    def failed(
        self, failure: Failure, *, id: str | None = None, row: InputRow | None = None, source: str = ""
    ) -> SummarizationResult:
        """Return the result of an example about which no judge was asked."""
        prompts = self._prompts.choose(self._options.language, source)
        record = self._record(Dialogue(self._session.engine), prompts, 0.0)
        return self._failed(failure, id, row, record)

    def _failed(
        self, failure: Failure, id: str | None, row: InputRow | None, record: RunRecord
    ) -> SummarizationResult:
        return SummarizationResult(
            id=id,
            status="failed",
            axes=self._options.axes,
            scale=self._options.scale,
            failure=failure,
            input=row,
            run=record,
        )

    async def _attempt(
        self, example: Example, questions: tuple[str, ...] | None, dialogue: Dialogue, prompts: PromptSet
    ) -> _Outcome | Failure:
        limit = asyncio.timeout(self._options.timeout)
        try:
            async with limit:
                return await self._judge(example, questions, dialogue, prompts)
        except Exception as error:
            if isinstance(error, UsageError | JudgeStoppedError):
                raise
            exceeded = self._options.timeout if limit.expired() else None
            return _failure_of(error, dialogue.step, exceeded)

    @property
    def _axes(self) -> tuple[Axis, ...]:
        axes = self._options.axes
        return ("alignment", "coverage") if axes == "both" else (axes,)

    def _task(self, example: Example, questions: tuple[str, ...] | None, prompts: PromptSet) -> Task:
        options = self._options
        return Task(
            source=example.source,
            summary=example.summary,
            axes=options.axes,
            max_questions=options.max_questions,
            questions=questions,
            reasons=options.reasons or "all",
            scales=self._calibration.scales(self._axes, prompts.language),
        )

    async def _judge(
        self, example: Example, questions: tuple[str, ...] | None, dialogue: Dialogue, prompts: PromptSet
    ) -> _Outcome:
        options, task = self._options, self._task(example, questions, prompts)
        axes = self._axes
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
            network=engine.network or process_network(),
            versions={"offline-summ": _version(), **engine.versions},
            seed=SEED,
            calls=len(dialogue.completions),
            tokens=dialogue.tokens,
            seconds=round(seconds, 3),
        )


@functools.cache
def _version() -> str:
    return metadata.version("offline-summ")


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
