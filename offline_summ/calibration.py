"""A calibration: load it, check that it belongs to this judge and these prompts, apply it, save it.

A judge gives a raw probability that a claim is supported (axis "alignment") or a question answered (axis
"coverage"). A calibration turns it into a probability that holds for human labels, and into a verdict.
Knows nothing of prompts, engines, and of how it was fitted.
"""

import hashlib
import json
import math
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from offline_summ.errors import UsageError

Axis = Literal["alignment", "coverage"]

FORMAT: Literal[1] = 1
ALL_LANGUAGES = "all"
UNSURE_BAND = 0.1
LEAST_PROBABILITY = 1e-6

_SHIPPED = Path(__file__).parent / "calibrations"
_AGAIN = "Run `offline-summ calibrate` again."
_Count = Annotated[int, Field(ge=0)]


def logit(probability: float) -> float:
    """Return the log odds of a probability, which is first clipped to 1e-6 .. 1 - 1e-6."""
    clipped = min(max(probability, LEAST_PROBABILITY), 1 - LEAST_PROBABILITY)
    return math.log(clipped / (1 - clipped))


def sigmoid(log_odds: float) -> float:
    """Return the probability that has these log odds; no value overflows."""
    if log_odds >= 0:
        return 1 / (1 + math.exp(-log_odds))
    odds = math.exp(log_odds)
    return odds / (1 + odds)


@dataclass(frozen=True)
class Decision:
    """What a scale makes of one raw probability.

    Attributes:
        probability: the calibrated probability, 0 to 1.
        yes: the verdict.
        unsure: the probability is too close to the threshold to rely on the verdict.
    """

    probability: float
    yes: bool
    unsure: bool


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class Scale(_Frozen):
    """A straight line on log odds, and the calibrated probability from which the verdict is yes.

    Attributes:
        slope: what the raw log odds are multiplied by; below 1 for an over-confident judge.
        intercept: what is then added.
        threshold: least calibrated probability of a yes.
    """

    slope: float = Field(gt=0)
    intercept: float
    threshold: float = Field(gt=0, lt=1)

    def decide(self, raw: float, *, band: float = UNSURE_BAND) -> Decision:
        """Turn a raw probability into a calibrated one and a verdict.

        The probability is Platt scaling on the judge's log odds: sigmoid(slope x logit(raw) + intercept)
        (Platt 1999, "Probabilistic outputs for support vector machines").

        Args:
            raw: the judge's probability, 0 to 1.
            band: the verdict is unsure if the probability, seen from the threshold as if that were 0.5,
                is closer than this to 0.5; 0 calls nothing unsure.

        Raises:
            UsageError: `raw` is not a probability.
        """
        if not 0 <= raw <= 1:
            raise UsageError(f"A judge's probability is {raw!r}.", "Give a number from 0 to 1.")
        probability = sigmoid(self.slope * logit(raw) + self.intercept)
        from_threshold = sigmoid(logit(probability) - logit(self.threshold))
        return Decision(probability, probability >= self.threshold, abs(from_threshold - 0.5) < band)


UNCALIBRATED = Scale(slope=1, intercept=0, threshold=0.5)


class Estimate(_Frozen):
    """A measured value and its 95 % interval.

    The interval of a calibration error may lie above its value: a resample adds noise, and noise is error.
    """

    value: float
    low: float
    high: float


class Figures(_Frozen):
    """How well probabilities and verdicts agree with human labels.

    Attributes:
        balanced_accuracy: mean of the shares of positive and of negative items that were judged right.
        auc: probability that a positive item got a higher probability than a negative one.
        ece: expected calibration error over ten bins of equal width.
    """

    balanced_accuracy: Estimate
    auc: Estimate
    ece: Estimate


class FittedScale(Scale):
    """A scale, the labels it was fitted to, and what it is worth.

    Attributes:
        items: number of labelled items.
        positives: how many of them are labelled yes.
        documents: number of sources they come from.
        before: figures of the raw probabilities with threshold 0.5.
        after: figures of calibrated probabilities, each from a fit that did not see the item's document.
    """

    items: _Count
    positives: _Count
    documents: _Count
    before: Figures
    after: Figures


class Calibration(_Frozen):
    """The scales of one judge, and what they hold for.

    Attributes:
        format: version of the file's shape.
        judge: name of the judge.
        weights_sha256: digest of its weights; None for an engine that has none.
        protocol: how it was asked.
        prompts_sha256: language to digest of its prompts.
        axes: axis to language to scale; the language "all" is for all of them together.
    """

    format: Literal[1] = FORMAT
    judge: str
    weights_sha256: str | None
    protocol: str
    prompts_sha256: dict[str, str] = Field(min_length=1)
    axes: dict[Axis, dict[str, FittedScale]]

    @property
    def sha256(self) -> str:
        """Digest of the calibration as JSON with sorted keys and no white space."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def scale(self, axis: Axis, language: str) -> Scale:
        """Return the scale of a language, else that of all languages, else `UNCALIBRATED`."""
        scales = self.axes.get(axis, {})
        return scales.get(language) or scales.get(ALL_LANGUAGES) or UNCALIBRATED

    def covers(self, axis: Axis, language: str) -> bool:
        """Return whether `scale` has a fitted one, of the language or of all languages."""
        return self.scale(axis, language) is not UNCALIBRATED

    def difference(
        self, *, weights_sha256: str | None, protocol: str, prompts_sha256: Mapping[str, str], origin: str
    ) -> str | None:
        """Return a sentence that says why the calibration does not hold here, or None if it does.

        Args:
            weights_sha256: digest of the judge's weights.
            protocol: how the judge is asked.
            prompts_sha256: language to digest of its prompts; languages that the calibration does not know
                are passed over.
            origin: where the calibration comes from, such as its path.
        """
        fitted = f"Calibration {origin!r} was fitted with"
        if weights_sha256 != self.weights_sha256:
            then, now = _short(self.weights_sha256), _short(weights_sha256)
            return f"{fitted} weights {then}, but those of the judge are {now}."
        if protocol != self.protocol:
            return f"{fitted} protocol {self.protocol!r}, but the protocol is {protocol!r}."
        for language in sorted(self.prompts_sha256.keys() & prompts_sha256.keys()):
            if prompts_sha256[language] != self.prompts_sha256[language]:
                then, now = _short(self.prompts_sha256[language]), _short(prompts_sha256[language])
                return f"{fitted} prompts {then} of language {language!r}, but they are now {now}."
        return None

    def check(
        self, *, weights_sha256: str | None, protocol: str, prompts_sha256: Mapping[str, str], origin: str
    ) -> None:
        """Refuse a calibration that does not hold here; for the arguments see `difference`.

        Raises:
            UsageError: the weights, the protocol or the prompts of a language have changed.
        """
        sentence = self.difference(
            weights_sha256=weights_sha256, protocol=protocol, prompts_sha256=prompts_sha256, origin=origin
        )
        if sentence is not None:
            raise UsageError(
                sentence, "Score with what it was fitted with, or run `offline-summ calibrate` again."
            )


def load_calibration(path: Path) -> Calibration:
    """Read a calibration.

    Raises:
        UsageError: the file is missing, cannot be read, is not JSON, or is no calibration of this format.
    """
    name = str(path)
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(
            f"There is no calibration {name!r}.", "Make it with `offline-summ calibrate`."
        ) from None
    except OSError as error:
        raise UsageError(
            f"Calibration {name!r} cannot be read: {error.strerror}.",
            "Give a file that `offline-summ calibrate` wrote.",
        ) from error
    except (ValueError, RecursionError):
        raise UsageError(f"Calibration {name!r} is not JSON.", _AGAIN) from None
    if isinstance(data, dict) and data.get("format", FORMAT) != FORMAT:
        raise UsageError(
            f"Calibration {name!r} has a format that this version does not know; it reads format {FORMAT}.",
            "Update offline-summ, or run `offline-summ calibrate` again.",
        )
    try:
        return Calibration.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "file"
        raise UsageError(f"Calibration {name!r} is wrong at {place!r}: {first['msg']}.", _AGAIN) from None


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration as indented JSON; a file of that name is replaced whole or stays as it was.

    Raises:
        UsageError: it cannot be written.
    """
    growing = path.with_name(f".calibration-{secrets.token_hex(8)}.tmp")
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{str(path)!r} is not a file.", "Give the name of a file to write.")
        try:
            with growing.open("x", encoding="utf-8") as file:
                file.write(calibration.model_dump_json(indent=2) + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(growing, path)
        finally:
            growing.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"Calibration {str(path)!r} cannot be written: {error.strerror}.",
            "Give a name in a folder that exists and can be written.",
        ) from error


def _short(digest: str | None) -> str:
    return "none" if digest is None else digest[:12]


def shipped_calibration(judge: str) -> Calibration | None:
    """Return the calibration that is shipped for a judge, or None.

    Args:
        judge: name of the judge.
    """
    path = _SHIPPED / f"{judge}.json"
    return load_calibration(path) if path.is_file() else None
