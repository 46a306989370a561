"""Which calibration a scorer uses: the one it is given, none, or the one that is shipped for its judge.

Knows nothing of judges but their name and the digest of their weights, and nothing of the command line.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from offline_summ.calibration import Axis, Calibration, Scale, load_calibration, shipped_calibration
from offline_summ.schemas import Protocol, UsedCalibration

NONE = "none"


class CalibrationChoice:
    """Checks a calibration as early as can be, and applies the one that holds.

    Args:
        given: a file, `NONE`, or None for the shipped one, which is passed over where it does not hold.
        protocol: how the judge is asked; `joint` has no probabilities to calibrate.
        prompts_sha256: language to digest of the prompts that may be used.

    Raises:
        UsageError: the file is no calibration, or belongs to another protocol or other prompts.
    """

    def __init__(
        self, given: str | Path | None, *, protocol: Protocol, prompts_sha256: Mapping[str, str]
    ) -> None:
        """Load what is given; the weights are not known yet."""
        self._protocol = protocol
        self._prompts = prompts_sha256
        self._looks_for_shipped = given is None and protocol == "itemized"
        self._chosen: tuple[str, Calibration] | None = None
        if given is not None and given != NONE:
            calibration = load_calibration(Path(given))
            self._chosen = Path(given).name, calibration
            self._check(calibration.weights_sha256)

    def settle(self, judge: str, weights_sha256: str | None) -> None:
        """Choose for this judge.

        Raises:
            UsageError: the given calibration belongs to other weights.
        """
        if not self._looks_for_shipped:
            self._check(weights_sha256)
            return
        shipped = shipped_calibration(judge)
        holds = shipped is not None and not shipped.difference(
            weights_sha256=weights_sha256,
            protocol=self._protocol,
            prompts_sha256=self._prompts,
            origin="shipped",
        )
        self._chosen = ("shipped", shipped) if shipped is not None and holds else None

    def scales(self, axes: Sequence[Axis], language: str) -> dict[Axis, Scale]:
        """Return the scale of each axis, for prompts of this language."""
        return {axis: self._chosen[1].scale(axis, language) for axis in axes} if self._chosen else {}

    def covers(self, axes: Sequence[Axis], language: str) -> bool:
        """Whether every axis has a fitted scale, for prompts of this language."""
        return self._chosen is not None and all(self._chosen[1].covers(axis, language) for axis in axes)

    @property
    def used(self) -> UsedCalibration | None:
        """What a run record says of it."""
        return self._chosen and UsedCalibration(name=self._chosen[0], sha256=self._chosen[1].sha256)

    def _check(self, weights_sha256: str | None) -> None:
        if self._chosen is not None:
            name, calibration = self._chosen
            calibration.check(
                weights_sha256=weights_sha256,
                protocol=self._protocol,
                prompts_sha256=self._prompts,
                origin=name,
            )
