"""The command line. The only place that prints and exits.

Results go to standard output, everything else to standard error. What is wrong is one line there, and an exit
code of DESIGN's table in `errors.py`. Heavy imports happen inside the commands.
"""

import errno
import json
import os
import signal
import sys
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from offline_summ.bug_report import describe_bug, keep_messages_back
from offline_summ.cli_airgap import AirgapOption, close_network
from offline_summ.cli_batch import batch
from offline_summ.cli_bundle import bundle
from offline_summ.cli_doctor import doctor
from offline_summ.cli_inputs import STDIN, find_judge, read_questions, read_run, read_text
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
from offline_summ.cli_verify import verify
from offline_summ.errors import (
    EXIT_BELOW_THRESHOLD,
    EXIT_JUDGE,
    EXIT_OK,
    EXIT_USAGE,
    OfflineSummError,
    UsageError,
    exit_code_of,
)
from offline_summ.terminal import (
    Stopped,
    complain,
    fill_closed_descriptors,
    progress_line,
    report,
    show,
    terminal,
    write,
)

if TYPE_CHECKING:
    from offline_summ.schemas import SummarizationResult

_WRITE_ERRORS = (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG, errno.EDQUOT)
_CLICK_ERROR = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

app = typer.Typer(
    name="offline-summ",
    help="Score a summary against its source with an open-weights judge model on this machine.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
judges_app = typer.Typer(
    help="List, show and fetch judge models.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(judges_app, name="judges")


def main() -> None:
    """Run the command line and exit."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    fill_closed_descriptors()
    terminal()
    keep_messages_back()
    try:
        code = _run()
        if sys.stdout is not None:
            sys.stdout.flush()
    except Stopped as stopped:
        code = complain(f"{stopped.message} {stopped.hint}", stopped.code)
    except BrokenPipeError:
        code = EXIT_OK  # the reader of standard output went away, as `head` does
    except Exception as error:  # noqa: BLE001 - whatever it is, its message may quote a document
        if isinstance(error, OSError) and error.errno in _WRITE_ERRORS and error.filename is None:
            code = complain(f"Standard output cannot be written: {error.strerror}.", EXIT_JUDGE)
        else:
            code = report(describe_bug(error), EXIT_JUDGE)
    # Everything is stopped and written. What vLLM and torch do at the end takes seconds, and can fail; and a
    # thread may be blocked in an engine that was still loading.
    os._exit(code)


def _run() -> int:
    if sys.stdout is None:
        return complain("Standard output is closed. Redirect it to a file or to /dev/null.", EXIT_USAGE)
    try:
        return typer.main.get_command(app).main(prog_name="offline-summ", standalone_mode=False) or EXIT_OK
    except OfflineSummError as error:
        return complain(str(error), error.exit_code)
    except _CLICK_ERROR as error:  # type: ignore[misc]
        return _complain_of_usage(error)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(metadata.version("offline-summ"))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


@app.command()
def score(
    source: Annotated[
        str | None, typer.Argument(metavar="SOURCE", help="File with the source; - is standard input.")
    ] = None,
    summary: Annotated[
        str | None, typer.Argument(metavar="SUMMARY", help="File with the summary; - is standard input.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="FILE",
            help='JSON with the "input" and "output" of a run, instead of SOURCE and SUMMARY.',
        ),
    ] = None,
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
        float | None, typer.Option("--timeout", metavar="S", help="Most seconds, loading excluded.")
    ] = None,
    redact: RedactOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
    fail_under: Annotated[
        float | None, typer.Option("--fail-under", metavar="X", help="Exit with 1 if the score is below X.")
    ] = None,
    grammar_backend: GrammarBackendOption = None,
    airgap: AirgapOption = "auto",
    models: ModelsOption = None,
    home: HomeOption = None,
    quiet: QuietOption = False,
) -> None:
    """Score one summary against its source.

    SOURCE and SUMMARY are text or Markdown in UTF-8, or, with the extra `docs`, PDF, DOCX or HTML.
    """
    close_network(airgap)
    if fail_under is not None and not 0 <= fail_under <= scale:
        raise UsageError(
            f"--fail-under is {fail_under!r}.", f"Give a number from 0 to the scale, which is {scale:g}."
        )
    run_input, run_output = read_run(run) if run is not None else (None, None)
    if run is not None and (source is not None or summary is not None):
        raise UsageError("--run stands instead of SOURCE and SUMMARY.", "Give one or the other.")
    if run is None and (source is None or summary is None):
        missing = "SOURCE and SUMMARY are" if source is None else "SUMMARY is"
        raise UsageError(f"{missing} missing.", "Give two files, or --run FILE.")
    for name, value in (("SOURCE", source), ("SUMMARY", summary), ("--run", run)):
        if value == "":
            raise UsageError(f"{name} is ''.", "Give the name of a file.")

    if questions is not None and max_questions is not None:
        raise UsageError(
            "--max-questions is for drawn questions, but --questions is given.", "Leave one out."
        )

    from offline_summ.options import DEFAULT_QUESTIONS, SummarizationOptions
    from offline_summ.scorer import SummarizationScorer
    from offline_summ.weights import default_home

    inputs = {"SOURCE": source, "SUMMARY": summary, "--questions": questions and str(questions)}
    piped = [name for name, value in inputs.items() if value == STDIN]
    if len(piped) > 1:
        raise UsageError(f"{' and '.join(piped)} are both '-'.", "Give a file for one of them.")

    chosen = find_judge(judge, models)
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
    texts = None if source is None or summary is None else (read_text(source), read_text(summary))
    with progress_line(quiet) as progress:
        scorer = SummarizationScorer(
            chosen,
            options,
            home=home or default_home(),
            grammar_backend=grammar_backend,
            airgap=airgap,
            on_progress=progress.show,
        )
        with scorer:
            result = scorer.score(*texts) if texts else scorer.run(run_input, run_output)
    _print_result(result, as_json)
    if result.failure is not None:
        raise typer.Exit(complain(result.failure.message, exit_code_of(result.failure.kind)))
    if fail_under is not None and result.score is not None and result.score < fail_under:
        message = f"The score {result.score:.2f} is below {fail_under:g}."
        raise typer.Exit(complain(message, EXIT_BELOW_THRESHOLD))


app.command()(batch)
app.command()(bundle)


@app.command()
def calibrate(
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", metavar="FILE", help="Labelled examples, JSON Lines; may be given again."),
    ] = None,
    judge: JudgeOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write it. Default: nowhere."),
    ] = None,
    prompts: PromptsOption = None,
    airgap: AirgapOption = "auto",
    models: ModelsOption = None,
    home: HomeOption = None,
    quiet: QuietOption = False,
) -> None:
    """Fit a judge's thresholds and probabilities to labels of people.

    A line of FILE is {"source": "...", "summary": "...", "sentences": [{"text": "...", "supported": true}],
    "key_facts": [{"text": "...", "covered": false}]}; `id` and `lang` are optional, one list is enough.
    Every figure comes from documents that the fit did not see.
    """
    close_network(airgap)
    if not data:
        raise UsageError("--data is missing.", "Give a file of labelled examples.")
    if output is not None and not output.parent.is_dir():
        raise UsageError(f"The folder of {str(output)!r} does not exist.", "Make it, or write elsewhere.")
    if output is not None and output.exists() and not output.is_file():
        raise UsageError(f"{str(output)!r} is not a file.", "Give the name of a file to write.")

    from offline_summ.calibration import save_calibration
    from offline_summ.calibration_view import calibration_view
    from offline_summ.calibrator import calibrate_judge
    from offline_summ.labelled import read_labelled
    from offline_summ.weights import default_home

    items = read_labelled(data)
    with progress_line(quiet) as progress:
        report = calibrate_judge(
            find_judge(judge, models),
            items,
            prompts=prompts,
            home=home or default_home(),
            airgap=airgap,
            on_progress=progress.show,
        )
    show(calibration_view(report.calibration, report.curves))
    tokens, failures = report.labels.tokens, report.labels.failures
    cached = tokens.cached / max(tokens.prompt, 1)
    write(f"{tokens.prompt} prompt tokens, {cached:.0%} of them from the prefix cache\n")
    for axis, why in report.unfitted.items():
        write(f"Not fitted: {axis}. {why}\n")
    for kind, count in failures.items():
        write(f"Left out: {count} items, {kind}\n")
    if output is not None:
        save_calibration(report.calibration, output)
        write(f"Written: {output}\n")


app.command()(verify)
app.command()(doctor)


@judges_app.command("list")
def list_judges(
    models: ModelsOption = None,
    home: HomeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the judges of models.toml, and whether their weights are ready on this machine."""
    from offline_summ.judges import load_registry
    from offline_summ.render import judges_view
    from offline_summ.weights import default_home, is_ready

    registry = load_registry(*models or ())
    rows = [(judge, is_ready(judge, home or default_home())) for judge in registry.judges.values()]
    if as_json:
        entries = [{**judge.model_dump(mode="json"), "ready": ready} for judge, ready in rows]
        write(json.dumps(entries, ensure_ascii=False, indent=2) + "\n")
    else:
        show(judges_view(rows, registry.default))


@judges_app.command("show")
def show_judge(
    name: Annotated[str, typer.Argument(metavar="NAME|DIR", help="A name in models.toml or a model folder.")],
    models: ModelsOption = None,
    home: HomeOption = None,
) -> None:
    """Show everything about one judge."""
    from offline_summ.render import judge_view
    from offline_summ.weights import default_home, is_ready

    judge = find_judge(name, models)
    show(judge_view(judge, is_ready(judge, home or default_home())))


@judges_app.command("fetch")
def fetch_judges(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Names in models.toml. Default: the default judge."),
    ] = None,
    models: ModelsOption = None,
    home: HomeOption = None,
    quiet: QuietOption = False,
) -> None:
    """Fetch and prepare the weights of judges. It may use the network, as `bundle` may, and no other."""
    from offline_summ.weights import default_home, fetch_judge, is_ready

    place = home or default_home()
    for judge in [find_judge(name, models) for name in names or (None,)]:
        there = is_ready(judge, place)
        with progress_line(quiet) as progress:
            prepared = fetch_judge(judge, place, progress.show)
        what = "was ready, and its digests are right" if there else "is ready"
        write(f"Judge {judge.name!r} {what}: {prepared.folder}\n")


def _print_result(result: "SummarizationResult", as_json: bool) -> None:
    from offline_summ import render

    if as_json:
        write(render.as_json(result))
    elif result.failure is None:
        show(render.result_view(result))


def _complain_of_usage(error: Any) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message())
        return EXIT_USAGE
    command = context.command_path if context else "offline-summ"
    return complain(f"{error.format_message().rstrip('.')}. Run `{command} --help`.", EXIT_USAGE)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)
    raise Stopped(number)
