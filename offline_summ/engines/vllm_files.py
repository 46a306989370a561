"""What the engine has to know of a model's files, beside the weights that vLLM reads itself.

Imports nothing of vLLM.
"""

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from offline_summ.errors import JudgeError


@contextlib.contextmanager
def empty_generation_config() -> Iterator[Path]:
    """Make a folder with a generation_config.json that names nothing.

    Under a grammar only the tokenizer's end-of-text token ends a reply. Further ones that the model's own
    generation_config.json names would end it in the middle of a text, and its sampling settings are not ours.
    """
    with tempfile.TemporaryDirectory(prefix="offline-summ-") as folder:
        (Path(folder) / "generation_config.json").write_text("{}", encoding="utf-8")
        yield Path(folder)


def end_of_text_ids(folder: Path) -> list[int]:
    """Return the tokens that the model's generation_config.json names as ends of a text."""
    file = folder / "generation_config.json"
    if not file.is_file():
        return []
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise JudgeError(f"Cannot read '{file}': it is not JSON.", "Copy it from the model again.") from error
    named = content.get("eos_token_id") if isinstance(content, dict) else None
    return [i for i in (named if isinstance(named, list) else [named]) if type(i) is int]
