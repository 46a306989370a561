"""The reason of a score: put together from the verdicts, or worded by the judge from the same figures.

Knows nothing of how the verdicts came about.
"""

from collections.abc import Mapping
from typing import Any

from offline_summ import grammar, scoring
from offline_summ.prompts import PromptSet
from offline_summ.protocols.base import Judgement
from offline_summ.protocols.dialogue import Dialogue
from offline_summ.protocols.items import one_line
from offline_summ.reply_form import is_at_limit
from offline_summ.schemas import Note
from offline_summ.scoring import Axes

_QUOTED = 3


def figures(judgement: Judgement, *, axes: Axes, scale: float) -> dict[str, Any]:
    """Return what a reason may speak of: the scores, and the failing claims and questions."""
    supported = [c.supported for c in judgement.claims]
    answered = [q.answered for q in judgement.questions]
    scores = scoring.score(supported, answered, axes=axes, scale=scale)

    def axis(share: float | None, verdicts: list[bool]) -> dict[str, float] | None:
        return None if share is None else {"share": share, "true": sum(verdicts), "all": len(verdicts)}

    return {
        "score": scores.value,
        "scale": scale,
        "alignment": axis(scores.alignment, supported),
        "coverage": axis(scores.coverage, answered),
        "deciding_axis": scores.deciding_axis,
        "unsupported": [one_line(c.claim or "") for c in judgement.claims if not c.supported],
        "unanswered": [one_line(q.question or "") for q in judgement.questions if not q.answered],
    }


def compose(prompts: PromptSet, variables: Mapping[str, Any]) -> str:
    """Put the reason together from the figures."""
    return prompts.render_reason(**variables, quoted=_QUOTED)


async def word(
    dialogue: Dialogue, prompts: PromptSet, variables: Mapping[str, Any]
) -> tuple[str, tuple[Note, ...]]:
    """Let the judge word the reason.

    Args:
        dialogue: the conversation to ask in.
        prompts: the prompts of one language.
        variables: the figures.

    Returns:
        The reason, and notes.

    Raises:
        ExampleError, JudgeError: as `Dialogue.ask`.
    """
    shown = {
        **variables,
        "unsupported": [prompts.defuse(claim) for claim in variables["unsupported"]],
        "unanswered": [prompts.defuse(question) for question in variables["unanswered"]],
    }
    form = grammar.reason_grammar()
    answer = await dialogue.ask("reason", prompts.render("worded_reason", **shown), form)
    cut = "reasons" in answer.cut or (
        answer.bounded and is_at_limit(grammar.WORDED_REASON, answer.reply.reason)
    )
    return answer.reply.reason, ("reasons_truncated",) if cut else ()


def replies() -> tuple[grammar.Piece, ...]:
    """Return every reply that `word` may ask a judge for."""
    form = grammar.reason_grammar()
    return (form, *form.pieces())
