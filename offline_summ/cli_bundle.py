"""The command `offline-summ bundle`: all that a machine without network needs, in one folder."""

from pathlib import Path
from typing import Annotated

import typer

from offline_summ.cli_inputs import find_judge
from offline_summ.cli_options import HomeOption, ModelsOption, QuietOption
from offline_summ.terminal import Stopped, progress_line, write


def bundle(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the bundle.")],
    judges: Annotated[
        list[str] | None,
        typer.Option(
            "--judge",
            metavar="NAME",
            help="A judge to take along; more may follow. Default: the default judge.",
        ),
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="More judges.")] = None,
    gpu: Annotated[
        bool | None,
        typer.Option("--gpu/--cpu", help="vLLM for the GPU or the CPU. Default: the one installed."),
    ] = None,
    models: ModelsOption = None,
    home: HomeOption = None,
    quiet: QuietOption = False,
) -> None:
    """Collect wheels, judges and an installer for a machine without network.

    Uses the network, and reads no document. A run that was stopped goes on where it was. The machine needs
    the same system, architecture and minor version of Python: carry DIR there, and run `sh DIR/install.sh`.
    """
    from offline_summ.bundle import make_bundle
    from offline_summ.weights import default_home

    names = [*(judges or ()), *(more or ())] or [None]
    chosen = {judge.name: judge for judge in (find_judge(name, models) for name in names)}
    try:
        with progress_line(quiet) as progress:
            made = make_bundle(
                output,
                list(chosen.values()),
                home or default_home(),
                engine=None if gpu is None else ("gpu" if gpu else "cpu"),
                models=models or (),
                on_progress=progress.show,
            )
    except Stopped as stopped:
        stopped.hint = "The same command goes on from here."
        raise
    write(
        f"{made.files} files, {made.wheels} of them wheels, {made.size / 1e9:.2f} GB\n"
        f"SHA-256 of SHA256SUMS: {made.sums_sha256}\n"
        f"Written: {output}. There: sh {output.name or 'DIR'}/install.sh\n"
    )
