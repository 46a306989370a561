"""Results and judges as people and programs read them: terminal tables and JSON.

Document text is shown with its control characters made visible, so that it cannot steer a terminal. Knows
nothing of engines.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from offline_summ.judges import Judge
from offline_summ.schemas import ClaimVerdict, Note, QuestionVerdict, SummarizationResult

NOTES: Mapping[Note, str] = {
    "no_claims": "The summary makes no claim that can be checked, so the score is 0.",
    "no_questions": "No question was drawn from the source, so the score is 0.",
    "claims_truncated": "The list of claims ended at a limit of the reply; there may be more.",
    "questions_truncated": "The list of questions ended at a limit of the reply.",
    "repeated_claims_dropped": "The judge listed a claim more than once; each counts once.",
    "repeated_questions_dropped": "The judge asked a question more than once; each counts once.",
    "reasons_truncated": "Some of the judge's reasons were cut; its verdicts were not.",
    "missing_verdicts": "The judge gave no verdict on some questions; they count as not answered.",
    "unanswerable_questions_dropped": "Questions that the source itself does not answer were dropped.",
    "redacted": "The texts were left out of this result.",
    "uncalibrated": "No calibration fits this judge and these prompts: the threshold is 0.5.",
}


def as_json(result: SummarizationResult) -> str:
    """Return the result as indented JSON in UTF-8 text, ending with a line break."""
    return result.model_dump_json(indent=2) + "\n"


def visible(text: str) -> str:
    """Return `text` on one line, with control characters replaced by U+FFFD.

    Joiners and directional marks stay, because scripts need them; overrides of the writing direction go,
    because they can make a line read as something else.
    """
    shown = []
    for character in " ".join(text.split()):
        category = unicodedata.category(character)
        harmful = category in ("Cc", "Cs", "Co", "Cn") or character in "\u202a\u202b\u202c\u202d\u202e"
        shown.append("\ufffd" if harmful else character)
    return "".join(shown)


def result_view(result: SummarizationResult) -> RenderableType:
    """Return a scored result for a terminal: score, axes, every verdict, and what decided."""
    heading = Table.grid(padding=(0, 2))
    heading.add_row(Text("Score", style="bold"), Text(_score_line(result), style="bold"))
    if result.alignment_score is not None:
        heading.add_row("Alignment", _share_line(result.alignment_score, *_alignment_counts(result)))
    if result.coverage_score is not None:
        heading.add_row("Coverage", _share_line(result.coverage_score, *_coverage_counts(result)))
    parts: list[RenderableType] = [heading]
    step1, step2 = result.preprocess_step_result, result.analyze_step_result
    if step1.alignment:
        claims = [_Row(c.claim, c.supported, c) for c in step1.alignment]
        parts += ["", _verdicts("Claim of the summary", "supported", claims)]
    if step2.coverage:
        questions = [_Row(q.question, q.answered, q) for q in step2.coverage]
        parts += ["", _verdicts("Question about the source", "answered", questions)]
    if result.reason:
        parts += ["", Text(visible(result.reason))]
    parts += [Text(f"Note: {NOTES[note]}", style="yellow") for note in result.notes]
    parts += ["", Text(_run_line(result), style="dim")]
    return Group(*parts)


def judges_view(judges: Sequence[tuple[Judge, bool]], default: str) -> RenderableType:
    """Return the table of judges.

    Args:
        judges: each judge, and whether its weights are ready on this machine.
        default: name of the default judge.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("judge", "size", "hardware", "verified", "weights"):
        table.add_column(column, no_wrap=column != "size", overflow="fold")
    for judge, ready in judges:
        table.add_row(
            judge.name + (" (default)" if judge.name == default else ""),
            judge.parameters,
            judge.hardware or "",
            "yes" if judge.verified else "no",
            "ready" if ready else "not fetched",
        )
    return table


def judge_view(judge: Judge, ready: bool) -> RenderableType:
    """Return everything that models.toml says about one judge."""
    table = Table.grid(padding=(0, 2))
    rows: dict[str, str] = {
        "judge": judge.name,
        "description": judge.description,
        "licence": judge.licence,
        "languages": " ".join(judge.languages),
        "size": judge.parameters,
        "hardware": judge.hardware or "",
        "dtype": judge.dtype,
        "context": f"{judge.context_length} tokens",
        "protocol": judge.protocol,
        "verified": "yes" if judge.verified else "no: nobody has run it with this package yet",
        "remote code": "allowed" if judge.trust_remote_code else "refused",
        "chat template": ", ".join(f"{k} = {v!r}" for k, v in judge.chat_template_arguments.items()),
        "thinking": f"at most {judge.thinking.max_tokens} tokens before the reply" if judge.thinking else "",
        "grammars": f"held by {judge.grammar_backend}" if judge.grammar_backend else "",
        "vLLM arguments": ", ".join(f"{k} = {v!r}" for k, v in judge.engine.items()),
        "weights": "ready" if ready else "not fetched",
    }
    for name, value in rows.items():
        if value:
            table.add_row(Text(name, style="bold"), Text(value))
    for source in judge.sources:
        table.add_row(Text("source", style="bold"), Text(source.describe()))
    return table


def _score_line(result: SummarizationResult) -> str:
    line = f"{result.score:.2f} of {result.scale:g}"
    if result.score_interval is not None and result.score_interval[0] < result.score_interval[1]:
        low, high = result.score_interval
        line += f", {low:.2f} to {high:.2f} as unsure verdicts (?) fall"
    if result.axes != "both":
        return f"{line} ({result.axes} alone)"
    if result.deciding_axis != "none":
        return f"{line} ({result.deciding_axis} decides)"
    return line


def _share_line(share: float, true: int, count: int, word: str) -> str:
    return f"{share:.2f}  {true} of {count} {word}"


def _alignment_counts(result: SummarizationResult) -> tuple[int, int, str]:
    verdicts = [verdict.supported for verdict in result.preprocess_step_result.alignment]
    return sum(verdicts), len(verdicts), "claims supported"


def _coverage_counts(result: SummarizationResult) -> tuple[int, int, str]:
    verdicts = [verdict.answered for verdict in result.analyze_step_result.coverage]
    return sum(verdicts), len(verdicts), "questions answered"


@dataclass(frozen=True)
class _Row:
    text: str | None
    yes: bool
    verdict: ClaimVerdict | QuestionVerdict


def _verdicts(title: str, word: str, rows: Sequence[_Row]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    probable = any(row.verdict.probability is not None for row in rows)
    explained = any(row.verdict.reason is not None for row in rows)
    table.add_column(word, no_wrap=True)
    if probable:
        table.add_column("P", no_wrap=True)
    table.add_column(title, ratio=1, overflow="fold")
    if explained:
        table.add_column("Reason", ratio=1, overflow="fold")
    for row in rows:
        verdict = row.verdict
        mark = Text("yes", style="green") if row.yes else Text("no", style="bold red")
        if verdict.unsure:
            mark.append(" ?", style="yellow")
        cells = [mark]
        if probable:
            cells.append(Text("" if verdict.probability is None else f"{verdict.probability:.2f}"))
        cells.append(Text("(redacted)" if row.text is None else visible(row.text)))
        if explained:
            cells.append(_reason(verdict))
        table.add_row(*cells)
    return table


def _reason(verdict: ClaimVerdict | QuestionVerdict) -> Text:
    shown = Text(visible(verdict.reason or ""), style="dim")
    for evidence in verdict.evidence or ():
        if evidence.quote is None:
            continue
        shown.append(f" “{visible(evidence.quote)}”", style="italic")
    return shown


def _run_line(result: SummarizationResult) -> str:
    run = result.run
    calibrated = f", calibration {visible(run.calibration.name)}" if run.calibration else ""
    return (
        f"judge {run.judge}, protocol {run.protocol}{calibrated}, language {run.language}, "
        f"{run.calls} calls, "
        f"{run.tokens.prompt} + {run.tokens.generated} tokens ({run.tokens.cached} cached), "
        f"{run.seconds:.1f} s"
    )
