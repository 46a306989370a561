"""What every protocol is asked, and what every protocol gives.

Knows nothing of how a judge is asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from offline_summ.calibration import UNCALIBRATED, UNSURE_BAND, Axis, Scale
from offline_summ.options import Reasons
from offline_summ.schemas import ClaimVerdict, DroppedQuestions, Note, QuestionVerdict
from offline_summ.scoring import Axes


@dataclass(frozen=True)
class Task:
    """One example, and what is asked about it.

    Attributes:
        source: the source.
        summary: the summary.
        axes: the axes to judge; an axis that is not asked for stays empty.
        max_questions: most questions to draw from the source.
        questions: the questions to ask instead of drawn ones; None draws them.
        reasons: which verdicts get a reason of the judge, in protocols where reasons cost calls.
        scales: how a probability becomes a verdict, an axis; an axis without one is not calibrated.
        band: how near the threshold a verdict is unsure.
    """

    source: str
    summary: str
    axes: Axes
    max_questions: int
    questions: tuple[str, ...] | None = None
    reasons: Reasons = "all"
    scales: Mapping[Axis, Scale] = field(default_factory=dict)
    band: float = UNSURE_BAND

    def scale(self, axis: Axis) -> Scale:
        """Return how a probability on this axis becomes a verdict."""
        return self.scales.get(axis, UNCALIBRATED)


@dataclass(frozen=True)
class Judgement:
    """The verdicts on one example.

    Attributes:
        claims: claims of the summary, with verdicts.
        questions: the questions asked, with verdicts.
        dropped: drawn questions that were not asked.
        notes: what a reader has to know.
    """

    claims: tuple[ClaimVerdict, ...] = ()
    questions: tuple[QuestionVerdict, ...] = ()
    dropped: DroppedQuestions = field(default_factory=DroppedQuestions)
    notes: tuple[Note, ...] = ()
