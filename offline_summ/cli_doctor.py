"""The command `offline-summ doctor`: whether a score would run on this machine. Reads no document."""

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer

from offline_summ.cli_inputs import find_judge
from offline_summ.cli_options import HomeOption, JudgeOption, ModelsOption, QuietOption
from offline_summ.errors import EXIT_JUDGE
from offline_summ.terminal import progress_line, write

if TYPE_CHECKING:
    from offline_summ.doctor import Examined, Finding
    from offline_summ.machine import Machine

_SIGNS = {"ok": "OK", "note": "--", "wrong": "!!"}


def doctor(
    judge: JudgeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    models: ModelsOption = None,
    home: HomeOption = None,
    quiet: QuietOption = False,
) -> None:
    """Check whether a score would run on this machine, and with --judge, whether that judge fits it.

    Each line begins with OK, with -- for what a score does without, or with !! for what it fails on; after a
    colon it says what to do. Exit codes: 0 a score would run, 4 it would not.
    """
    from offline_summ.airgap import close_process

    fallback = close_process("auto")

    from offline_summ.airgap import why_no_namespace
    from offline_summ.doctor import Wanted, examine
    from offline_summ.judges import load_registry
    from offline_summ.machine import this_machine
    from offline_summ.weights import default_home
    from offline_summ.weights_files import Progress

    registry = load_registry(*models or ())
    wanted = Wanted(registry, find_judge(judge, models), judge is not None, home or default_home())
    with progress_line(quiet) as progress:
        progress.show(Progress("importing vLLM", 0, None, None))
        machine = this_machine()
        no_namespace = (why_no_namespace() or "the kernel refused it") if fallback else None
        examined = examine(wanted, machine, no_namespace, progress.show)
    write(_as_json(examined, machine) if as_json else _as_text(examined))
    raise typer.Exit(0 if examined.is_ready else EXIT_JUDGE)


def _as_text(examined: "Examined") -> str:
    lines = list(map(_line, examined.findings))
    if examined.fit is not None:
        last = lines.pop()
        lines += [f"    {label:<11}{text}" for label, text in examined.fit.arithmetic]
        lines.append(last)
    return "\n".join(lines) + "\n"


def _line(finding: "Finding") -> str:
    from offline_summ.render import visible

    said = f"{finding.what}: {finding.advice}" if finding.advice else finding.what
    return f"{_SIGNS[finding.state]}  {visible(said)}"


def _as_json(examined: "Examined", machine: "Machine") -> str:
    fit = examined.fit
    content = {
        "ready": examined.is_ready,
        "findings": [dataclasses.asdict(finding) for finding in examined.findings],
        "machine": dataclasses.asdict(machine),
        "fit": fit and {**dataclasses.asdict(fit), "arithmetic": [list(line) for line in fit.arithmetic]},
    }
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"
