"""Judges: who they are, where their weights come from, and `models.toml`, which lists them.

A judge is described by a table of `models.toml` or is simply a folder that holds a Hugging Face model.
Everything here is checked before a byte of weights is read: an unknown key, a wrong type or an engine
argument that this package sets itself is one `UsageError` that names file, judge and key.
Knows nothing of engines, and never touches the network.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    field_validator,
    model_validator,
)

from offline_summ.errors import UsageError, WeightsError
from offline_summ.judge_sources import SOURCE_TYPES, Entry, FolderSource, HubSource, NonEmpty, Source
from offline_summ.model_folder import check_model_folder, stated_context
from offline_summ.resources import data_path
from offline_summ.schemas import Protocol

MAX_FOLDER_CONTEXT = 32768
"""Tokens of context that a judge given as a folder gets at most; an entry in models.toml may ask for more."""

# Engine arguments that this package sets itself, and the key of the judge that says the same.
_OWN_ENGINE_ARGUMENTS: Mapping[str, str] = {
    "model": "sources",
    "tokenizer": "sources",
    "revision": "sources",
    "served_model_name": "the name of the judge",
    "dtype": "dtype",
    "max_model_len": "context_length",
    "trust_remote_code": "trust_remote_code",
    "seed": "",
    "enable_prefix_caching": "",
    "logprobs_mode": "",
    "structured_outputs_config": "grammar_backend",
    "reasoning_parser": "thinking",
    "reasoning_parser_plugin": "thinking",
    "reasoning_config": "thinking",
    "generation_config": "",
    "override_generation_config": "",
}

# fmt: off
_OWN_TEMPLATE_ARGUMENTS = frozenset((
    "add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents",
    "max_length", "messages", "padding", "return_assistant_tokens_mask", "return_dict", "return_tensors",
    "tokenize", "tokenizer_kwargs", "tools", "truncation",
))
# fmt: on

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

GrammarBackend = Literal["guidance", "outlines", "xgrammar"]


class Thinking(Entry):
    """How a judge thinks before it replies, where its chat template cannot switch that off.

    Attributes:
        start: opens the thoughts; added unless the chat template ends with it already.
        end: closes the thoughts; the reply begins after it.
        max_tokens: most tokens to think; then the thoughts are closed and the reply begins.
    """

    start: str = "<think>\n"
    end: Annotated[str, Field(pattern=r"\S")] = "\n</think>\n\n"
    max_tokens: Annotated[StrictInt, Field(gt=0)] = 1024


class Judge(Entry):
    """A judge model: where its weights come from, and how it is run.

    Attributes:
        name: the name on the command line and in every result.
        description: one sentence for `offline-summ judges list`.
        licence: SPDX identifier, or the licence's own name where it has none.
        languages: ISO 639-1 codes of the languages it reads well; empty if unknown.
        parameters: size as people say it, such as `"1.5B"`.
        hardware: the smallest machine it is meant for.
        dtype: number type in which the engine runs it.
        context_length: tokens of prompt and reply together.
        verified: whether someone has run it with this package.
        trust_remote_code: whether code inside the model folder may be run. Read that code first.
        chat_template_arguments: extra arguments of the chat template.
        chat_template: a chat template for judges that have none.
        thinking: how the judge thinks before it replies; None for judges that do not, or are told not to.
        grammar_backend: what holds the judge to its grammars inside vLLM; None is guidance, or outlines for a
            tokenizer that guidance cannot read.
        protocol: how it is asked unless an option says otherwise.
        sources: where the weights come from, tried in order.
        engine: any vLLM engine argument that this package does not set itself.
    """

    name: NonEmpty
    description: str = ""
    licence: NonEmpty
    languages: tuple[NonEmpty, ...] = ()
    parameters: str = ""
    hardware: Literal["cpu", "1x24GB", "1x80GB", "8x80GB"] | None = None
    dtype: Literal["bfloat16", "float16", "float32", "auto"] = "auto"
    context_length: Annotated[StrictInt, Field(gt=0)]
    verified: StrictBool = False
    trust_remote_code: StrictBool = False
    chat_template_arguments: dict[str, Any] = Field(default_factory=dict)
    chat_template: NonEmpty | None = None
    thinking: Thinking | None = None
    grammar_backend: GrammarBackend | None = None
    protocol: Protocol = "joint"
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    engine: dict[str, Any] = Field(default_factory=dict)

    @field_validator("engine")
    @classmethod
    def _free_engine_arguments(cls, engine: dict[str, Any]) -> dict[str, Any]:
        for key in engine:
            if key in _OWN_ENGINE_ARGUMENTS:
                instead = _OWN_ENGINE_ARGUMENTS[key]
                advice = f"use {instead!r} of the judge instead" if instead else "it cannot be changed"
                raise ValueError(f"engine argument {key!r} is set by offline-summ: {advice}")
        return engine

    @field_validator("chat_template_arguments")
    @classmethod
    def _free_template_arguments(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        for key in arguments:
            if key in _OWN_TEMPLATE_ARGUMENTS:
                raise ValueError(f"argument {key!r} is set by offline-summ: it cannot be changed")
        return arguments

    @model_validator(mode="after")
    def _verified_means_pinned(self) -> Self:
        for source in self.sources:
            if self.verified and isinstance(source, HubSource) and not source.pinned:
                raise ValueError(
                    f"a verified judge needs a full commit as revision of {source.repository!r}, "
                    f"got {source.revision!r}"
                )
        return self


@dataclass(frozen=True)
class Registry:
    """The judges that models.toml names.

    Attributes:
        default: name of the judge used when none is asked for.
        judges: every judge by name, in the order of the files.
    """

    default: str
    judges: Mapping[str, Judge]

    def get(self, name: str) -> Judge:
        """Return the judge called `name`.

        Raises:
            UsageError: no judge has this name; the message tells the nearest names.
        """
        if name in self.judges:
            return self.judges[name]
        lowered = {known.lower(): known for known in self.judges}
        near = [lowered[key] for key in difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.5)]
        meant = f" Nearest: {', '.join(near)}." if near else ""
        raise UsageError(
            f"There is no judge {name!r}.{meant}",
            "Run `offline-summ judges list` to see all, or give the folder of a model.",
        )


def load_registry(*files: Path) -> Registry:
    """Read the shipped models.toml and the user's files on top of it.

    A judge of a later file replaces the earlier one of the same name whole; so does `default`. Relative
    paths of folders and GGUF files are relative to the file that names them.

    Args:
        files: further files in the format of models.toml.

    Raises:
        UsageError: a file cannot be read, or says something that cannot be; names file, judge and key.
    """
    default = ""
    judges: dict[str, Judge] = {}
    for file in (data_path("models.toml"), *files):
        table = _read_toml(file)
        for key in table:
            if key not in ("default", "judges"):
                raise UsageError(
                    f"{file}: unknown key {key!r}.",
                    "A file of judges has 'default' and [judges.<name>] only.",
                )
        entries = table.get("judges", {})
        if not isinstance(entries, dict):
            raise UsageError(f"{file}: 'judges' must be a table, got {entries!r}.")
        for name, entry in entries.items():
            judges[name] = _judge_from_entry(file, name, entry)
        if "default" in table:
            default = table["default"]
            if not isinstance(default, str) or default not in judges:
                raise UsageError(f"{file}: default judge {default!r} is not among the judges.")
    return Registry(default, judges)


def resolve_judge(name_or_path: str, registry: Registry) -> Judge:
    """Return the judge that a user means: a name of the registry first, then the folder of a model.

    Args:
        name_or_path: name of a judge, or a path. It counts as a path if it is an existing folder,
            contains a separator, or starts with `.` or `~`.
        registry: the judges known by name.

    Raises:
        UsageError: neither a judge nor an existing folder.
        WeightsError: the folder does not hold a complete model.
    """
    if name_or_path in registry.judges:
        return registry.judges[name_or_path]
    looks_like_path = "/" in name_or_path or "\\" in name_or_path or name_or_path.startswith((".", "~"))
    path = _absolute(Path(name_or_path)) if looks_like_path else Path(name_or_path)
    if looks_like_path or (name_or_path and path.is_dir()):
        return judge_from_folder(path)
    return registry.get(name_or_path)


def judge_from_folder(path: Path) -> Judge:
    """Return the judge that is simply a folder with a Hugging Face model; it is called as the folder.

    Raises:
        UsageError: there is no such folder.
        WeightsError: the folder does not hold a complete model, or states no context length.
    """
    folder = _absolute(Path(path))
    config = check_model_folder(folder)
    stated = stated_context(config)
    if stated is None:
        raise WeightsError(
            f"'{folder / 'config.json'}' states no context length (max_position_embeddings).",
            "Give the judge an entry with context_length in a models.toml of yours.",
        )
    return Judge(
        name=folder.name or "folder",
        description="a model folder",
        licence="unknown",
        context_length=min(stated, MAX_FOLDER_CONTEXT),
        sources=(FolderSource(path=folder),),
    )


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"Cannot read the file of judges '{file}': {error.strerror}.") from error
    except RecursionError as error:
        raise UsageError(f"{file}: not valid TOML: it is nested too deep.") from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are both ValueErrors
        raise UsageError(f"{file}: not valid TOML: {error}.") from error


def _judge_from_entry(file: Path, name: str, entry: Any) -> Judge:
    where = f"{file}: judge {name!r}"
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{where}: a name has letters, digits, '.', '_' and '-' only.")
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: must be a table, got {entry!r}.")
    if "name" in entry:
        raise UsageError(f"{where}: unknown key 'name'.", "The name is that of the table.")
    entry = {**entry, "name": name}
    if isinstance(entry.get("sources"), list):
        entry["sources"] = [_with_absolute_path(file, source) for source in entry["sources"]]
    try:
        return Judge.model_validate(entry)
    except ValidationError as error:
        problem, hint = _explain(error)
        raise UsageError(f"{where}: {problem}.", hint) from error


def _with_absolute_path(file: Path, source: Any) -> Any:
    if not isinstance(source, dict) or not isinstance(source.get("path"), str):
        return source
    return {**source, "path": str(_absolute(file).parent / _at_home(Path(source["path"])))}


def _absolute(path: Path) -> Path:
    try:
        return _at_home(path).resolve()
    except OSError as error:  # such as a current folder that was removed
        raise UsageError(f"The path {str(path)!r} cannot be followed: {error.strerror}.") from error


def _at_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise UsageError(f"The path {str(path)!r} names no user's home.", "Give a full path.") from error


def _explain(error: ValidationError) -> tuple[str, str]:
    """Put the first thing that pydantic found into one sentence that names the key, and a hint."""
    # An unknown key explains a missing one (licence and license), so it goes first.
    details = sorted(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
    detail = details[0]
    location = list(detail["loc"])
    known: type[Entry] = Judge
    if len(location) > 2 and location[0] == "sources" and location[2] in SOURCE_TYPES:
        known = SOURCE_TYPES[str(location.pop(2))]
    elif len(location) > 1 and location[0] == "thinking":
        known = Thinking
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    value = repr(detail["input"])
    value = value if len(value) <= 60 else value[:57] + "..."
    match detail["type"]:
        case "extra_forbidden":
            near = difflib.get_close_matches(str(location[-1]), known.model_fields, n=1)
            return f"unknown key {key!r}", f"Did you mean {near[0]!r}?" if near else ""
        case "missing":
            return f"key {key!r} is missing", ""
        case "union_tag_invalid" | "union_tag_not_found":
            return f"key '{key}.kind' must be one of {', '.join(SOURCE_TYPES)}", ""
        case "value_error":
            said = str(detail["ctx"]["error"])
            return (f"key {key!r}: {said}" if key else said), ""
        case "model_type" | "dict_type":
            return f"key {key!r} must be a table, got {value}", ""
        case "string_pattern_mismatch" if location[-1] == "end":
            return f"key {key!r} must be more than white space, got {value}", ""
        case "string_pattern_mismatch" if location[-1] == "sha256":
            return f"key {key!r} must be 64 hexadecimal digits, got {value}", ""
        case _:
            said = detail["msg"][0].lower() + detail["msg"][1:]
            return f"key {key!r}: {said}, got {value}", ""
