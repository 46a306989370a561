"""The shapes that come in and go out: examples, verdicts, results and the record of a run.

All models are frozen. Scores are not stored: a result computes them from its verdicts, and a result read
from a file whose written scores differ from its verdicts is refused. Knows nothing of judges and engines.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    computed_field,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from offline_summ import scoring
from offline_summ.errors import FailureKind
from offline_summ.scoring import Axes, DecidingAxis

Protocol = Literal["joint", "itemized"]
Step = Literal["input", "claims", "questions", "source_judgement", "coverage", "reason"]
Network = Literal["namespace", "guard", "engine_namespace", "engine_guard", "open"]
Note = Literal[
    "no_claims",
    "no_questions",
    "claims_truncated",
    "questions_truncated",
    "repeated_claims_dropped",
    "repeated_questions_dropped",
    "reasons_truncated",
    "missing_verdicts",
    "unanswerable_questions_dropped",
    "uncalibrated",
    "redacted",
]
Probability = Annotated[float, Field(ge=0, le=1)]

_COMPUTED = ("score", "score_interval", "alignment_score", "coverage_score", "deciding_axis")
_COMPUTED_KEYS = {key: name for name in _COMPUTED for key in (name, to_camel(name))}
_FIRST_KEYS = tuple(
    key
    for name in ("id", "status", *_COMPUTED[:2], "reason", *_COMPUTED[2:], "axes", "scale")
    for key in dict.fromkeys((name, to_camel(name)))
)


class _Frozen(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )


class ScoresDifferError(ValueError):
    """A written score is not what the verdicts beside it give."""


class Example(_Frozen):
    """One source and summary to score."""

    source: str
    summary: str
    id: str | None = None


class InputRow(_Frozen):
    """Where an example stands in a run of many.

    Attributes:
        number: its place in the input, from 1: the line of a JSON Lines file, the record of a table.
        text_sha256: digest of its id, its texts and the questions of its own; null where results are in no
            file.
        settings_sha256: digest of all else that its score depends on: weights, prompts, protocol,
            calibration and options.
    """

    number: int = Field(ge=1)
    text_sha256: str | None = None
    settings_sha256: str | None = None


class Evidence(_Frozen):
    """A passage behind a verdict: `quote == text[start:end]`, in characters of the text named by `in`.

    In a redacted result `quote` is null.
    """

    in_: Literal["source", "summary"] = Field(alias="in")
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    quote: str | None

    @model_serializer(mode="wrap")
    def _write_in_without_underscore(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        return {"in" if key == "in_" else key: value for key, value in written.items()}


class ClaimVerdict(_Frozen):
    """One claim of the summary, and whether the source supports it.

    Attributes:
        claim: the claim; null in a redacted result.
        supported: the verdict.
        unsure: whether the probability lies so near the threshold that the verdict could be the other one;
            null where a protocol has no probabilities.
        reason: the judge's reason.
        probability: of "supported", calibrated where there is a calibration.
        evidence: where the source states it; null if unknown.
    """

    claim: str | None
    supported: bool
    unsure: bool | None = None
    reason: str | None = None
    probability: Probability | None = None
    evidence: tuple[Evidence, ...] | None = None


class QuestionVerdict(_Frozen):
    """One question about the source, and whether the summary alone answers it with yes.

    Attributes:
        question: the question; null in a redacted result.
        answered: the verdict.
        unsure: whether the probability lies so near the threshold that the verdict could be the other one;
            null where a protocol has no probabilities.
        reason: the judge's reason.
        probability: of "answered", calibrated where there is a calibration.
        evidence: where the summary answers it; null if unknown.
    """

    question: str | None
    answered: bool
    unsure: bool | None = None
    reason: str | None = None
    probability: Probability | None = None
    evidence: tuple[Evidence, ...] | None = None


class DroppedQuestions(_Frozen):
    """How many questions were drawn and not asked.

    Attributes:
        unanswerable: the judge does not find them answered with yes by the source itself.
        repeated: they ask what another one asks.
    """

    unanswerable: Annotated[int, Field(ge=0)] = 0
    repeated: Annotated[int, Field(ge=0)] = 0


class PreprocessStepResult(_Frozen):
    """Step 1, the source judgement: claims with verdicts, and the questions about the source.

    In a redacted result there are as many questions, and each is null.
    """

    alignment: tuple[ClaimVerdict, ...] = ()
    questions: tuple[str | None, ...] = ()
    dropped_questions: DroppedQuestions = DroppedQuestions()


class AnalyzeStepResult(_Frozen):
    """Step 2, coverage: one verdict for each question that was asked."""

    coverage: tuple[QuestionVerdict, ...] = ()


class Failure(_Frozen):
    """Why an example has no score."""

    kind: FailureKind
    message: str
    step: Step


class Tokens(_Frozen):
    """Token counts over all calls of an example; `cached` is the part of `prompt` from the prefix cache."""

    prompt: int = 0
    cached: int = 0
    generated: int = 0


class UsedCalibration(_Frozen):
    """The calibration that turned the judge's probabilities into verdicts.

    Attributes:
        name: "shipped", or the name of its file.
        sha256: its digest.
    """

    name: str
    sha256: str


class RunRecord(_Frozen):
    """How a result came about, so that the same result can be shown to come from the same set-up.

    Attributes:
        judge: name of the judge.
        weights_sha256: digest of the judge's weights; None for an engine that has none.
        prompts_sha256: digest of the prompt files of the language used.
        protocol: how the judge was asked.
        calibration: what turned probabilities into verdicts; None if nothing did.
        language: language of the prompts.
        engine: name of the engine.
        dtype: number type that the judge computed in; "auto" is the one of its weights.
        grammar_backend: name of what held the judge to its grammars; None if nothing did.
        network: how the network was closed: for the whole program and all that it started, by the kernel
            ("namespace") or inside Python ("guard"), or for the engine's processes only ("engine_namespace",
            "engine_guard"); "open" if it was not, null in a result of an earlier version.
        versions: versions of the packages that take part in a score.
        seed: seed of the decoding.
        calls: number of calls to the judge; a reply that was cut takes more than one.
        tokens: token counts over these calls.
        seconds: wall time of the example, loading of the judge excluded.
    """

    judge: str
    weights_sha256: str | None
    prompts_sha256: str
    protocol: Protocol
    calibration: UsedCalibration | None = None
    language: str
    engine: str
    dtype: str | None = None
    grammar_backend: str | None = None
    network: Network | None = None
    versions: dict[str, str]
    seed: int
    calls: int
    tokens: Tokens
    seconds: float


class SummarizationResult(_Frozen):
    """The result of one example. `model_dump(by_alias=True)` gives the camelCase of the reference scorer.

    Attributes:
        id: id of the example, if it had one.
        status: "scored", or "failed" with a failure and no number anywhere.
        axes: the axes that were asked for.
        scale: what a perfect score is worth.
        reason: a text that names what decided; None if not asked for, or failed.
        preprocess_step_result: claims with verdicts, and the questions.
        analyze_step_result: one verdict a question.
        notes: what a reader of the score has to know.
        failure: what went wrong, if the status is "failed".
        input: where the example stands in a run of many; null for a single one.
        run: how the result came about.
    """

    id: str | None = None
    status: Literal["scored", "failed"]
    axes: Axes = "both"
    scale: float = Field(default=1.0, gt=0)
    reason: str | None = None
    preprocess_step_result: PreprocessStepResult = PreprocessStepResult()
    analyze_step_result: AnalyzeStepResult = AnalyzeStepResult()
    notes: tuple[Note, ...] = ()
    failure: Failure | None = None
    input: InputRow | None = None
    run: RunRecord

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_scores_that_differ_from_the_verdicts(cls, data: Any, handler: Any) -> "SummarizationResult":
        if not isinstance(data, dict):
            return handler(data)  # type: ignore[no-any-return]
        written = {name: data[key] for key, name in _COMPUTED_KEYS.items() if key in data}
        result: SummarizationResult = handler({k: v for k, v in data.items() if k not in _COMPUTED_KEYS})
        for name, value in written.items():
            if (tuple(value) if isinstance(value, list) else value) != getattr(result, name):
                raise ScoresDifferError(
                    f"{name} is {value!r}, but the verdicts give {getattr(result, name)!r}"
                )
        return result

    @model_validator(mode="after")
    def _fail_with_a_failure_only(self) -> "SummarizationResult":
        if (self.status == "failed") != (self.failure is not None):
            raise ValueError("a result has a failure if, and only if, its status is 'failed'")
        return self

    def _scores(self) -> scoring.Score | None:
        if self.status == "failed":
            return None
        return scoring.score(
            [v.supported for v in self.preprocess_step_result.alignment],
            [v.answered for v in self.analyze_step_result.coverage],
            axes=self.axes,
            scale=self.scale,
        )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def score(self) -> float | None:
        """The score, rounded to two decimals; None when failed."""
        scores = self._scores()
        return scores.value if scores else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def score_interval(self) -> tuple[float, float] | None:
        """Lowest and highest score if each unsure verdict may be either; None without probabilities."""
        claims, coverage = self.preprocess_step_result.alignment, self.analyze_step_result.coverage
        known = [c.unsure for c in claims] + [q.unsure for q in coverage]
        if self.status == "failed" or all(unsure is None for unsure in known):
            return None
        low, high = (
            scoring.score(
                [unsure if v.unsure else v.supported for v in claims],
                [unsure if v.unsure else v.answered for v in coverage],
                axes=self.axes,
                scale=self.scale,
            ).value
            for unsure in (False, True)
        )
        return low, high

    @computed_field  # type: ignore[prop-decorator]
    @property
    def alignment_score(self) -> float | None:
        """Share of supported claims, full precision; None when failed or not asked for."""
        scores = self._scores()
        return scores.alignment if scores else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def coverage_score(self) -> float | None:
        """Share of answered questions, full precision; None when failed or not asked for."""
        scores = self._scores()
        return scores.coverage if scores else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def deciding_axis(self) -> DecidingAxis:
        """The axis that set the score; "none" if failed, nothing to count, or both axes are equal."""
        scores = self._scores()
        return scores.deciding_axis if scores else "none"

    @model_serializer(mode="wrap")
    def _write_in_reading_order(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        return {**{key: written[key] for key in _FIRST_KEYS if key in written}, **written}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the fields, and not the serializer, which only puts them in order."""

        def fields_of(schema: Any) -> Any:
            kept = {key: value for key, value in schema.items() if key != "serialization"}
            if schema["type"] != "model" and "schema" in schema:  # a validator around the model
                kept["schema"] = fields_of(schema["schema"])
            return kept

        return handler(fields_of(core_schema))
