"""The command `offline-summ batch`: many rows, one file of results."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from offline_summ.cli_airgap import AirgapOption, close_network
from offline_summ.cli_inputs import STDIN, find_judge, read_questions
from offline_summ.cli_options import (
    AxesOption,
    CalibrationOption,
    GrammarBackendOption,
    HomeOption,
    JudgeOption,
    LanguageOption,
    MaxQuestionsOption,
    ModelsOption,
    PromptsOption,
    ProtocolOption,
    QuestionsOption,
    QuietOption,
    ReasonOption,
    ReasonsOption,
    RedactOption,
    ScaleOption,
)
from offline_summ.errors import (
    EXIT_BELOW_THRESHOLD,
    EXIT_SOME_ROWS_FAILED,
    InputError,
    JudgeError,
    UsageError,
)
from offline_summ.terminal import Stopped, complain, run_progress, show, write

if TYPE_CHECKING:
    from offline_summ.batch import BatchOutcome


def batch(
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="JSON Lines, CSV, TSV or Parquet file, or a folder; - is standard input."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File for the results, JSON Lines.")
    ],
    format: Annotated[
        Literal["jsonl", "csv", "tsv", "parquet"] | None,
        typer.Option("--format", help="Format of INPUT. Default: by its ending; jsonl for -."),
    ] = None,
    source_column: Annotated[
        str, typer.Option("--source-column", metavar="NAME", help="Column or key of the source.")
    ] = "source",
    summary_column: Annotated[
        str, typer.Option("--summary-column", metavar="NAME", help="Column or key of the summary.")
    ] = "summary",
    id_column: Annotated[
        str, typer.Option("--id-column", metavar="NAME", help="Column or key of the id, if there is one.")
    ] = "id",
    questions_column: Annotated[
        str,
        typer.Option(
            "--questions-column", metavar="NAME", help="Column or key of a row's own questions, if any."
        ),
    ] = "questions",
    resume: Annotated[
        bool,
        typer.Option("--resume/--no-resume", help="Go on where FILE ends, or refuse to if it has results."),
    ] = True,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Score rows again that failed in an earlier run.")
    ] = False,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Write results in the order of INPUT, not as they are finished.")
    ] = False,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            metavar="N",
            min=1,
            help="Most rows at once. Default: as many as keep the judge busy.",
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option("--table", metavar="FILE", help="Write a flat table as well: .csv or .parquet."),
    ] = None,
    summary_json: Annotated[
        Path | None,
        typer.Option("--summary-json", metavar="FILE", help="Write the figures of the end as JSON."),
    ] = None,
    fail_under: Annotated[
        float | None,
        typer.Option("--fail-under", metavar="X", help="Exit with 1 if the mean score is below X."),
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="With --fail-under: if the score of any row is below X.")
    ] = False,
    judge: JudgeOption = None,
    protocol: ProtocolOption = None,
    axes: AxesOption = "both",
    max_questions: MaxQuestionsOption = None,
    questions: QuestionsOption = None,
    scale: ScaleOption = 1.0,
    language: LanguageOption = None,
    prompts: PromptsOption = None,
    reason: ReasonOption = "composed",
    reasons: ReasonsOption = None,
    calibration: CalibrationOption = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="S", help="Most seconds for one row.")
    ] = None,
    redact: RedactOption = False,
    grammar_backend: GrammarBackendOption = None,
    airgap: AirgapOption = "auto",
    models: ModelsOption = None,
    home: HomeOption = None,
    quiet: QuietOption = False,
) -> None:
    """Score many summaries; a run that was stopped goes on where it was.

    A row of INPUT has a source and a summary, and an id and questions if wanted; or the input and output of
    a run. A folder holds NAME.source.txt beside NAME.summary.txt, or folders with a source.txt and summaries.
    """
    close_network(airgap)
    if fail_under is not None and not 0 <= fail_under <= scale:
        raise UsageError(
            f"--fail-under is {fail_under!r}.", f"Give a number from 0 to the scale, which is {scale:g}."
        )
    if each and fail_under is None:
        raise UsageError("--each is given without --fail-under.", "Give the score as well.")
    if questions is not None and max_questions is not None:
        raise UsageError(
            "--max-questions is for drawn questions, but --questions is given.", "Leave one out."
        )
    if source == STDIN and questions is not None and str(questions) == STDIN:
        raise UsageError("INPUT and --questions are both '-'.", "Give a file for one of them.")

    from offline_summ.batch import BatchInput, refuse_outputs, run_batch
    from offline_summ.options import DEFAULT_QUESTIONS, SummarizationOptions
    from offline_summ.rows import Columns
    from offline_summ.scorer import SummarizationScorer
    from offline_summ.weights import default_home

    refuse_outputs(source, output, table, summary_json)
    columns = Columns(source_column, summary_column, id_column, questions_column)
    rows = BatchInput(source, format, columns)
    rows.check()
    options = SummarizationOptions(
        max_questions=DEFAULT_QUESTIONS if max_questions is None else max_questions,
        questions=None if questions is None else read_questions(questions),
        scale=scale,
        axes=axes,
        protocol=protocol,
        reasons=reasons,
        calibration=calibration,
        language=language,
        reason=reason,
        prompts=prompts,
        timeout=timeout,
        redact=redact,
    )
    chosen = find_judge(judge, models)
    with run_progress(quiet, rows.count) as progress:
        scorer = SummarizationScorer(
            chosen,
            options,
            home=home or default_home(),
            grammar_backend=grammar_backend,
            airgap=airgap,
            on_progress=progress.show,
        )
        try:
            with scorer:
                outcome = run_batch(
                    scorer,
                    rows,
                    output,
                    resume=resume,
                    retry_failed=retry_failed,
                    concurrency=concurrency,
                    ordered=ordered,
                    on_written=progress.count,
                )
        except Stopped as stopped:
            stopped.hint = "The same command goes on from here."
            raise
    _report(outcome, output, table, summary_json)
    raise typer.Exit(_exit_code(outcome, fail_under, each))


def _report(outcome: "BatchOutcome", output: Path, table: Path | None, summary_json: Path | None) -> None:
    from offline_summ.batch_view import batch_view
    from offline_summ.results_file import results_in_order
    from offline_summ.table_file import write_table
    from offline_summ.whole_file import write_whole

    if not outcome.totals.rows:
        raise InputError("The input holds no row.", "Give a file with rows.")
    # The files first: standard output may be full.
    if table is not None:
        write_table(results_in_order(output), table)
    if summary_json is not None:
        figures = json.dumps(outcome.summary(), ensure_ascii=False, indent=2)
        try:
            write_whole(summary_json, figures + "\n")
        except OSError as error:
            raise JudgeError(f"{str(summary_json)!r} cannot be written: {error.strerror}.") from None
    show(batch_view(outcome))
    for path in (output, table, summary_json):
        if path is not None:
            write(f"Written: {path}\n")


def _exit_code(outcome: "BatchOutcome", fail_under: float | None, each: bool) -> int:
    totals = outcome.totals
    if totals.failed:
        return complain(f"{totals.failed} of {totals.rows} rows failed.", EXIT_SOME_ROWS_FAILED)
    if fail_under is not None and (below := totals.below(fail_under)) and each:
        return complain(
            f"The scores of {below} of {totals.rows} rows are below {fail_under:g}.", EXIT_BELOW_THRESHOLD
        )
    mean = totals.mean_score
    if fail_under is not None and not each and mean is not None and mean < fail_under:
        return complain(f"The mean score {mean:.3f} is below {fail_under:g}.", EXIT_BELOW_THRESHOLD)
    return 0
