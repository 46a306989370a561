"""What the command line reads for its commands: judges, texts, questions and runs.

Knows nothing of scoring.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offline_summ.errors import InputError, UsageError

if TYPE_CHECKING:
    from offline_summ.judges import Judge

STDIN = "-"


def find_judge(name: str | None, models: list[Path] | None) -> "Judge":
    """Return the judge that is named; None is the default judge."""
    from offline_summ.judges import load_registry, resolve_judge

    registry = load_registry(*models or ())
    return registry.get(registry.default) if name is None else resolve_judge(name, registry)


def read_text(name: str) -> str:
    """Return the text of a document; `-` is standard input."""
    from offline_summ.documents import decode_text, read_document

    if name != STDIN:
        return read_document(Path(name))
    if sys.stdin is None:
        raise InputError("Standard input is closed.", "Redirect a file into it, or name the file.")
    return decode_text(sys.stdin.buffer.read(), STDIN)


def read_questions(path: Path) -> list[str]:
    """Return the questions of a file, one a line."""
    from offline_summ.options import checked_questions

    lines = read_text(str(path)).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    try:
        return list(checked_questions([line for line in lines if line.strip()]))
    except UsageError as error:
        said = error.message[:1].lower() + error.message[1:]
        raise UsageError(f"Questions {str(path)!r}: {said}", error.hint) from None


def read_run(name: str) -> tuple[Any, Any]:
    """Return input and output of a run's JSON file."""
    from offline_summ.documents import parse_json
    from offline_summ.messages import run_of

    return run_of(parse_json(read_text(name), name))
