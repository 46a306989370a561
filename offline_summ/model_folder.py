"""A folder that holds a Hugging Face model: whether everything that a judge needs is there.

Reads JSON files and names of files, never weights. Knows nothing of judges and engines.
"""

import json
from pathlib import Path
from typing import Any

from offline_summ.errors import UsageError, WeightsError


def check_model_folder(folder: Path, *, needs_chat_template: bool = True) -> dict[str, Any]:
    """Check that a folder holds a complete Hugging Face model, and return its config.json.

    Args:
        folder: the folder.
        needs_chat_template: False for a judge whose entry brings its own chat template.

    Raises:
        UsageError: there is no such folder.
        WeightsError: config.json, tokenizer, weights or chat template is missing or cannot be read.
    """
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise UsageError(
            f"Model folder '{folder}' {what}.", "Give the folder that holds the model's config.json."
        )
    names = {entry.name for entry in folder.iterdir()}
    if "config.json" not in names:
        raise WeightsError(f"Model folder '{folder}' has no config.json.", _absent_config_hint(names))
    config = _read_json(folder / "config.json")
    if not names & {"tokenizer.json", "tokenizer_config.json", "tokenizer.model"}:
        raise WeightsError(
            f"Model folder '{folder}' has no tokenizer.",
            "Copy the model's tokenizer.json and tokenizer_config.json into it.",
        )
    if not any(name.endswith((".safetensors", ".bin")) and (folder / name).is_file() for name in names):
        raise WeightsError(
            f"Model folder '{folder}' has no weights.", "Copy the model's *.safetensors files into it."
        )
    if needs_chat_template and not _has_chat_template(folder, names):
        raise WeightsError(
            f"Model folder '{folder}' has no chat template.",
            "Take an instruction-tuned model, add its chat_template.jinja, or give the text of a template as "
            "`chat_template` in an entry of a models.toml of yours.",
        )
    return config


def _absent_config_hint(names: set[str]) -> str:
    gguf = sorted(name for name in names if name.endswith(".gguf"))
    if gguf:
        return f"Give {gguf[0]!r} an entry with a source of kind 'gguf' in a models.toml of yours."
    return "Give the folder that holds the model's config.json, tokenizer and *.safetensors."


def _has_chat_template(folder: Path, names: set[str]) -> bool:
    if "chat_template.jinja" in names or "chat_template.json" in names:
        return True
    if "tokenizer_config.json" not in names:
        return False
    return bool(_read_json(folder / "tokenizer_config.json").get("chat_template"))


def stated_context(config: dict[str, Any]) -> int | None:
    """Return the context length that a config.json states, in tokens."""
    text_config = config.get("text_config")
    for table in (config, text_config if isinstance(text_config, dict) else {}):
        for key in ("max_position_embeddings", "n_positions"):
            if type(table.get(key)) is int and table[key] > 0:
                return int(table[key])
    return None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise WeightsError(
            f"Cannot read '{path}': {reason}.", "Copy the file from the model again."
        ) from error
    if not isinstance(content, dict):
        raise WeightsError(f"'{path}' is not a JSON object.", "Copy the file from the model again.")
    return content
