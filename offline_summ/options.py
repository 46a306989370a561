"""`SummarizationOptions`: how to score, checked when it is made.

Knows nothing of judges, engines and files.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from offline_summ.errors import UsageError
from offline_summ.schemas import Protocol
from offline_summ.scoring import Axes
from offline_summ.surrogates import without_surrogates

ReasonMode = Literal["composed", "judge", "none"]
Reasons = Literal["all", "failing", "none"]
SourceExtractor = Callable[[Any, Any], str | Sequence[str]]

DEFAULT_QUESTIONS = 10
MOST_QUESTIONS = 100
_SCALE = (0.01, 1e6)
_TIMEOUT = (0.001, 1e6)


@dataclass(frozen=True)
class SummarizationOptions:
    """How to score.

    Attributes:
        source: the source, or several context texts; beats the run input.
        source_extractor: gets run input and run output and returns the source; beats `source`.
        max_questions: most questions to draw from the source, 1 to 100.
        scale: what a perfect score is worth, 0.01 to 1,000,000.
        axes: "both", or one axis alone, which is then the score.
        protocol: how the judge is asked; None is the judge's own, and "joint" for an engine.
        questions: closed questions, or facts, to ask of the summary instead of drawn ones; all are asked.
        reasons: which verdicts the judge gives a reason for, and evidence where it is positive; None is
            "all". Only the protocol "itemized" has the choice.
        calibration: a file that `offline-summ calibrate` wrote; "none" takes the judge's probabilities as
            they are; None is the one that is shipped for this judge and these prompts, if there is one.
        language: language of the prompts; None goes by the source.
        reason: "composed" from the verdicts, worded by the "judge" in one more call, or "none".
        prompts: a folder of prompts that replace the shipped ones.
        timeout: most seconds for one example, loading of the judge excluded; None is no limit.
        redact: leave every text out of the results; see `redaction.redacted`.

    Raises:
        UsageError: a value is out of range.
    """

    source: str | Sequence[str] | None = None
    source_extractor: SourceExtractor | None = None
    max_questions: int = DEFAULT_QUESTIONS
    scale: float = 1.0
    axes: Axes = "both"
    protocol: Protocol | None = None
    questions: Sequence[str] | None = None
    reasons: Reasons | None = None
    calibration: str | Path | None = None
    language: str | None = None
    reason: ReasonMode = "composed"
    prompts: str | Path | None = None
    timeout: float | None = None
    redact: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if type(self.max_questions) is not int or not 1 <= self.max_questions <= MOST_QUESTIONS:
            raise UsageError(
                f"max_questions is {self.max_questions!r}.",
                f"Give a whole number from 1 to {MOST_QUESTIONS}.",
            )
        if not _lies_in(self.scale, _SCALE):
            raise UsageError(f"scale is {self.scale!r}.", "Give a number from 0.01 to 1,000,000.")
        if self.timeout is not None and not _lies_in(self.timeout, _TIMEOUT):
            raise UsageError(f"timeout is {self.timeout!r}.", "Give seconds, from 0.001 to 1,000,000.")
        if self.language is not None and not (isinstance(self.language, str) and self.language):
            raise UsageError(f"language is {self.language!r}.", "Give a code such as 'en', or None.")
        if self.source_extractor is not None and not callable(self.source_extractor):
            raise UsageError(f"source_extractor is {self.source_extractor!r}.", "Give a function.")
        if self.prompts is not None and not isinstance(self.prompts, str | Path):
            raise UsageError(f"prompts is {self.prompts!r}.", "Give a folder.")
        if self.calibration is not None and not isinstance(self.calibration, str | Path):
            raise UsageError(f"calibration is {self.calibration!r}.", "Give a file, or 'none'.")
        if not isinstance(self.redact, bool):
            raise UsageError(f"redact is {self.redact!r}.", "Give True or False.")
        choices: dict[str, tuple[Any, ...]] = {
            "axes": get_args(Axes),
            "protocol": (None, *get_args(Protocol)),
            "reason": get_args(ReasonMode),
            "reasons": (None, *get_args(Reasons)),
        }
        for name, allowed in choices.items():
            value = getattr(self, name)
            if value not in allowed:
                words = ", ".join(word for word in allowed if word is not None)
                raise UsageError(f"{name} is {value!r}.", f"Choose one of {words}.")
        if self.questions is not None:
            checked_questions(self.questions)
            if self.axes == "alignment":
                raise UsageError("questions are given, but axes is 'alignment'.", "Leave one of them out.")


def checked_questions(questions: object) -> tuple[str, ...]:
    """Return questions of the user's own, without outer white space.

    Raises:
        UsageError: they are no list of texts, too many, blank, or the same twice.
    """
    if isinstance(questions, str) or not isinstance(questions, Sequence):
        raise UsageError(f"questions is of type {type(questions).__name__}.", "Give a list of texts.")
    found: dict[str, int] = {}
    for number, question in enumerate(questions, start=1):
        if not isinstance(question, str) or not any(c.isalnum() for c in question):
            raise UsageError(
                f"Question {number} holds no text.", "Give questions that the summary may answer."
            )
        text = " ".join(without_surrogates(question).split())
        if text in found:
            raise UsageError(f"Question {number} repeats question {found[text]}.", "Ask each question once.")
        found[text] = number
    if not 1 <= len(found) <= MOST_QUESTIONS:
        raise UsageError(f"{len(found)} questions are given.", f"Give from 1 to {MOST_QUESTIONS}.")
    return tuple(found)


def _lies_in(value: object, bounds: tuple[float, float]) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return bounds[0] <= value <= bounds[1]
