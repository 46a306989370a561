"""A result without its texts: scores, verdicts, counts and offsets stay. Knows nothing of judges."""

from typing import TypeVar

from offline_summ.schemas import (
    AnalyzeStepResult,
    ClaimVerdict,
    Evidence,
    QuestionVerdict,
    SummarizationResult,
)

_Verdict = TypeVar("_Verdict", ClaimVerdict, QuestionVerdict)


def redacted(result: SummarizationResult) -> SummarizationResult:
    """Return the result without claims, questions, reasons and quotes, and with the note `redacted`.

    What the user gave to tell results apart stays: the id. So do digests of the texts, and the message of a
    failure, which never holds text of a document.

    Args:
        result: the result; it stays as it is.
    """
    step1, step2 = result.preprocess_step_result, result.analyze_step_result
    return result.model_copy(
        update={
            "reason": None,
            "preprocess_step_result": step1.model_copy(
                update={
                    "alignment": tuple(_without_text(verdict, "claim") for verdict in step1.alignment),
                    "questions": (None,) * len(step1.questions),
                }
            ),
            "analyze_step_result": AnalyzeStepResult(
                coverage=tuple(_without_text(verdict, "question") for verdict in step2.coverage)
            ),
            "notes": (*result.notes, "redacted"),
        }
    )


def _without_text(verdict: _Verdict, text: str) -> _Verdict:
    evidence = None if verdict.evidence is None else tuple(map(_without_quote, verdict.evidence))
    return verdict.model_copy(update={text: None, "reason": None, "evidence": evidence})


def _without_quote(evidence: Evidence) -> Evidence:
    return evidence.model_copy(update={"quote": None})
