"""Questions drawn from a source, which every summary of it is asked. Knows nothing of how they are drawn."""

from dataclasses import dataclass

from offline_summ.schemas import DroppedQuestions, Note, SummarizationResult

_QUESTION_NOTES: tuple[Note, ...] = (
    "questions_truncated",
    "repeated_questions_dropped",
    "unanswerable_questions_dropped",
)


@dataclass(frozen=True)
class DrawnQuestions:
    """Questions drawn from a source, in its order, with what was dropped."""

    questions: tuple[str, ...]
    dropped: DroppedQuestions
    notes: tuple[Note, ...]

    @classmethod
    def of(cls, result: SummarizationResult) -> "DrawnQuestions":
        """Return the questions that an earlier result of the same source, not redacted, was asked."""
        step = result.preprocess_step_result
        notes = tuple(note for note in result.notes if note in _QUESTION_NOTES)
        questions = tuple(question for question in step.questions if question is not None)
        return cls(questions, step.dropped_questions, notes)
