"""`SummarizationScorer`: a judge and options; one example in, one result out.

Knows nothing of files and the command line.
"""

import asyncio
from collections.abc import AsyncIterable, Iterable, Sequence
from pathlib import Path
from typing import Any

from offline_summ import messages
from offline_summ.airgap import Airgap
from offline_summ.calibration_choice import CalibrationChoice
from offline_summ.engines.base import Engine
from offline_summ.engines.choice import engine_of, judge_of
from offline_summ.errors import UsageError
from offline_summ.example import example_of
from offline_summ.judges import GrammarBackend, Judge
from offline_summ.loop import in_thread
from offline_summ.many import ScoredInput, ScoredMany
from offline_summ.options import SummarizationOptions
from offline_summ.prompts import PromptLibrary, load_prompts
from offline_summ.runner import ExampleRunner
from offline_summ.schemas import Protocol, SummarizationResult
from offline_summ.session import Session
from offline_summ.weights import default_home, ignore_progress
from offline_summ.weights_files import OnProgress


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
        airgap: whether the network of vLLM's processes is closed: by the kernel, or else by a guard
            ("auto"), by the kernel or the judge does not load ("required"), or not ("off"). The program
            itself stays as it is; see `airgap.close_process` for that.
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
        airgap: Airgap = "auto",
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
        engine = engine_of(judge, grammar_backend, home or default_home(), on_progress, airgap)
        self._session = Session(engine, on_progress)
        self._runner = ExampleRunner(
            self._session, self._options, self._prompts, self._protocol, self._calibration
        )

    @property
    def options(self) -> SummarizationOptions:
        """How this scorer scores."""
        return self._options

    @property
    def judge(self) -> str:
        """Name of the judge."""
        return self._session.engine.record.judge

    def settings_sha256(self) -> str:
        """Return the digest of all that a score depends on but the texts; the judge must be loaded."""
        return self._runner.settings_sha256()

    def remember_questions(self, source: str, result: SummarizationResult) -> None:
        """Ask further summaries of a source the questions that one of it was asked in an earlier run.

        Args:
            source: the source.
            result: the earlier result, of the same judge, prompts and options, with drawn questions.
        """
        self._session.run(self._runner.remember_questions(source, result))

    def start(self) -> None:
        """Load the judge now instead of with the first score.

        Raises:
            WeightsError: its weights are not on this machine, or not what they should be.
            JudgeError: it cannot be loaded.
        """
        self._session.run(self._runner.start())

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

    def score_many(
        self,
        examples: Iterable[ScoredInput] | AsyncIterable[ScoredInput],
        *,
        concurrency: int | None = None,
        ordered: bool = False,
    ) -> ScoredMany:
        """Score many examples; iterate over what is returned with `for` or `async for`.

        Examples are asked for as there is room and results come as they are finished, so that neither all
        examples nor all results are ever held at once. Examples of one source are scored together, and what
        they ask alike is asked once. `result.input.number` is the place of an example, from 1.

        Args:
            examples: each an `Example`, a pair of source and summary, or a mapping with the keys `source` and
                `summary`, and `id` and `questions` if wanted; from a list or a generator, also an
                asynchronous one. One that is malformed has a result with the failure `unreadable_input`.
            concurrency: most examples at once; None goes by what the engine works on at once.
            ordered: whether results come in the order of the examples.

        Raises:
            UsageError: `concurrency` or `examples` is not as above; while iterating, an example has questions
                although coverage is not asked for.
            JudgeError: while iterating, the judge cannot be loaded, or keeps stopping.
        """
        return ScoredMany(
            examples,
            self._session,
            self._runner,
            self._protocol,
            concurrency=concurrency,
            ordered=ordered,
        )

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

    def _prompts_used(self) -> dict[str, str]:
        languages = self._prompts.languages
        used = [self._options.language] if self._options.language is not None else [*languages]
        return {language: languages[language].digest("itemized") for language in used}

    async def _score_run(
        self, input: Any, output: Any, id: str | None, questions: Sequence[str] | None
    ) -> SummarizationResult:
        # In a thread: an extractor of the user's may block, or score something itself.
        source = await in_thread(
            messages.source_of,
            input,
            output,
            source=self._options.source,
            extractor=self._options.source_extractor,
        )
        example = example_of(id, source, messages.summary_of(output))
        return await self._runner.score(example, self._runner.questions(questions))

    async def _score_text(
        self, source: str | Sequence[str], summary: str, id: str | None, questions: Sequence[str] | None
    ) -> SummarizationResult:
        joined = messages.source_of(None, None, source=source)
        example = example_of(id, joined, messages.text_of(summary))
        return await self._runner.score(example, self._runner.questions(questions))


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
