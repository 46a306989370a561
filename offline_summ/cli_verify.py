"""The command `offline-summ verify`: whether results come from what is installed. Prints no document text."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offline_summ.cli_airgap import close_network
from offline_summ.cli_options import HomeOption, ModelsOption, PromptsOption, QuietOption
from offline_summ.errors import EXIT_DIFFERENT, EXIT_JUDGE, EXIT_OK
from offline_summ.terminal import complain, progress_line, show, write

if TYPE_CHECKING:
    from offline_summ.verify import Check, ResultsRead


def verify(
    results: Annotated[
        str,
        typer.Argument(
            metavar="RESULTS", help="Results of batch, or what score --json printed; - is standard input."
        ),
    ],
    prompts: PromptsOption = None,
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", metavar="FILE", help="The calibration that the results name."),
    ] = None,
    models: ModelsOption = None,
    home: HomeOption = None,
    quiet: QuietOption = False,
) -> None:
    """Check results against what is installed: weights, prompts, calibration, versions, and their verdicts.

    Exit codes: 0 all is the same, 1 something differs, 3 RESULTS cannot be read, 4 nothing differs, but
    something cannot be checked here.
    """
    close_network("auto")

    from offline_summ.calibration import load_calibration
    from offline_summ.judges import load_registry
    from offline_summ.prompts import load_prompts
    from offline_summ.row_files import opened
    from offline_summ.verify import Installed, read_set_ups
    from offline_summ.verify_view import verify_view
    from offline_summ.weights import default_home

    registry, library = load_registry(*models or ()), load_prompts(prompts)
    own = None if calibration is None else load_calibration(calibration)
    with opened(results) as lines:
        read = read_set_ups(lines, results)
    with progress_line(quiet) as progress:
        installed = Installed(registry, home or default_home(), library, own, progress.show)
        checks = [installed.compare(set_up.record) for set_up in read.set_ups]
    show(verify_view(read, checks))
    raise typer.Exit(_exit_code(read, [check for each in checks for check in each]))


def _exit_code(read: "ResultsRead", checks: "list[Check]") -> int:
    different = sorted({check.what for check in checks if check.state == "different"})
    if read.differing_scores.count:
        different.append("written scores")
    if different:
        return complain(f"Different: {', '.join(different)}.", EXIT_DIFFERENT)
    unchecked = sorted({check.what for check in checks if check.state == "not checkable"})
    if unchecked:
        return complain(f"Cannot be checked here: {', '.join(unchecked)}.", EXIT_JUDGE)
    write("All is the same.\n")
    return EXIT_OK
