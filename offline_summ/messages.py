"""Turns the input and output of a run into the two texts that are scored: the source and the summary.

Reads chat messages and tool results in the shapes that agent frameworks write (OpenAI, Anthropic, Gemini,
AI SDK, LangChain, pydantic-ai), as parsed JSON or as the frameworks' own objects. It knows nothing of
scoring, judges or engines, and never guesses: where there is no text it returns `""`.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from offline_summ.errors import InputError, UsageError
from offline_summ.surrogates import without_surrogates

__all__ = ["Extractor", "ToolResult", "extract_tool_results", "run_of", "source_of", "summary_of", "text_of"]

Extractor = Callable[[Any, Any], str | Sequence[str]]
"""Given the run's input and output, returns the source: one text, or the context texts it consists of."""

_MAX_DEPTH = 24
"""No framework nests messages this deep; below it nothing counts as text."""

_USER = frozenset({"user", "human", "humanmessagechunk"})
_ASSISTANT = frozenset({"assistant", "ai", "model", "aimessagechunk"})
_TOOL = frozenset({"tool", "function", "toolmessagechunk"})
_OTHER = frozenset({"system", "developer", "systemmessagechunk"})
_ROLES = _USER | _ASSISTANT | _TOOL | _OTHER
_KIND_TO_ROLE = {"request": "user", "response": "assistant"}  # pydantic-ai names a message by `kind`

_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "user-prompt"})
_TOOL_CALLS = frozenset({"tool_use", "tool-call", "tool_call", "function_call", "server_tool_use"})
_TOOL_RESULTS = frozenset({"tool_result", "tool-result", "tool-return", "function_call_output"})

_INPUT_KEYS = (
    "inputMessages", "input_messages", "messages", "contents", "prompt", "text", "content", "parts", "input",
    "user",
)  # fmt: skip
_OUTPUT_KEYS = (
    "text", "parts", "content", "outputMessages", "output_messages", "messages", "choices", "candidates",
    "message", "output", "response", "summary",
)  # fmt: skip
_TEXT_KEYS = ("parts", "content", "text", "value", "message")
_NESTED_TOOL_KEYS = (
    "inputMessages", "input_messages", "outputMessages", "output_messages", "messages", "choices",
    "candidates", "message", "output", "response", "steps", "content", "parts", "toolInvocations",
    "toolResults", "tool_results",
)  # fmt: skip
_NAME_KEYS = ("toolName", "tool_name", "name")
_ID_KEYS = ("toolCallId", "tool_call_id", "tool_use_id", "call_id", "id")
_VALUE_KEYS = ("result", "output", "content", "response")
_ATTRIBUTES = frozenset(
    {"role", "type", "kind", "part_kind", "function", "tool_calls", "thought", "state", "source", "data"}
).union(_INPUT_KEYS, _OUTPUT_KEYS, _TEXT_KEYS, _NESTED_TOOL_KEYS, _NAME_KEYS, _ID_KEYS, _VALUE_KEYS)


_Path = tuple[int, ...]
"""The ids of the containers being read: its length bounds the depth, its members break cycles."""


@dataclass(frozen=True)
class ToolResult:
    """What one tool call of a run returned.

    Attributes:
        tool: name of the tool; None if the run does not say.
        result: what the tool returned, unchanged: a text, a list of parts, or any JSON value.
        call_id: id of the call that it answers; None if the run does not say.
    """

    tool: str | None
    result: Any
    call_id: str | None = None


def source_of(
    run_input: Any,
    run_output: Any,
    *,
    source: str | Sequence[str] | None = None,
    extractor: Extractor | None = None,
) -> str:
    """Return the source of a run: what the extractor returns, else `source`, else the first user message.

    An extractor or a `source` that is given decides alone, even if it gives an empty text. Several context
    texts are joined with a blank line between; blank ones are left out.

    Args:
        run_input: a text, one message, a list of messages, or an object that holds them.
        run_output: the output of the same run; only the extractor looks at it.
        source: the source itself, or the context texts it consists of.
        extractor: called as `extractor(run_input, run_output)`; what it raises is not caught.

    Returns:
        The source; `""` if the run has no user message with text.

    Raises:
        UsageError: the extractor or `source` gave something else than a text or a sequence of texts.
    """
    if extractor is not None:
        return _given_text(extractor(run_input, run_output), "The extractor returned a value")
    if source is not None:
        return _given_text(source, "The option 'source' is a value")
    return _run_text(run_input, _USER, _INPUT_KEYS, ())


def summary_of(run_output: Any) -> str:
    """Return the summary of a run: the text of the last assistant message that carries text.

    Args:
        run_output: a text, one message, a list of messages or of text parts (joined in order when none has
            a role), or an object that holds them, such as an OpenAI response.

    Returns:
        The summary; `""` if there is none. A turn that only calls tools is not a summary.
    """
    return _run_text(run_output, _ASSISTANT, _OUTPUT_KEYS, ())


def text_of(content: Any) -> str:
    r"""Return the text of a message's content, all text parts joined in order.

    Parts meet in a line break, unless one side of the seam already has white space there. Frameworks split
    one message both at paragraphs and, with citations or streaming, inside a sentence; words that run
    together can change a fact, a line break cannot.

    Images, tool calls, tool results and reasoning carry no text. Where an object has both `parts` and
    `content`, the parts count: some frameworks keep only the last part in `content`. A lone surrogate
    (`"\ud800"`, legal in JSON) is not text and becomes U+FFFD, so that results can be written as UTF-8.

    Args:
        content: a text, a list of parts, or an object with `parts`, `content` or `text`.

    Returns:
        The text, otherwise unchanged; `""` if there is none, or only deeper than 24 levels.
    """
    return _text(content, ())


def extract_tool_results(run_output: Any) -> list[ToolResult]:
    """Return what the tools of a run returned, in order, each call once.

    Understands OpenAI messages (chat and Responses), Anthropic and Gemini parts, AI SDK parts and
    `toolInvocations`, and LangChain messages. Calls without a result yet are left out. Results are handed
    over unchanged; `text_of` turns a list of parts into text.

    Args:
        run_output: a list of messages, one message, or an object that holds them.
    """
    names: dict[str, str] = {}
    found: list[ToolResult] = []
    for event in _tool_events(run_output, ()):
        if isinstance(event, ToolResult):
            found.append(event)
        else:
            names[event[0]] = event[1]
    results: list[ToolResult] = []
    seen: set[str] = set()
    for one in found:
        if one.call_id is not None:
            if one.call_id in seen:
                continue
            seen.add(one.call_id)
        tool = one.tool if one.tool is not None or one.call_id is None else names.get(one.call_id)
        results.append(ToolResult(tool, one.result, one.call_id))
    return results


def run_of(data: Any) -> tuple[Any, Any]:
    """Return the input and the output of one parsed run file.

    Args:
        data: an object with `input` and `output`, or with `runInput` and `runOutput`.

    Raises:
        InputError: it is something else; the message names the keys found, never their values.
    """
    hint = "Write one JSON object with the keys 'input' and 'output' (or 'runInput' and 'runOutput')."
    if not isinstance(data, Mapping):
        raise InputError(f"A run must be an object, but this is {_type_name(data)}.", hint)
    for input_key, output_key in (("input", "output"), ("runInput", "runOutput")):
        if input_key in data and output_key in data:
            return data[input_key], data[output_key]
    shown = [repr(str(key)[:40]) for key in list(data)[:10]]
    more = f" and {len(data) - len(shown)} more" if len(data) > len(shown) else ""
    found = ", ".join(shown) + more if shown else "none"
    raise InputError(f"A run needs its input and its output, but has these keys: {found}.", hint)


def _given_text(value: Any, origin: str) -> str:
    """Join what an extractor or the `source` option gave, or refuse it without showing it."""
    if isinstance(value, str):
        return without_surrogates(value)
    hint = "Give a str, or a list of str."
    if not isinstance(value, Sequence) or isinstance(value, bytes | bytearray | memoryview):
        raise UsageError(f"{origin} of type {type(value).__name__!r}, not a text.", hint)
    for number, item in enumerate(value, start=1):
        if not isinstance(item, str):
            raise UsageError(
                f"{origin} whose item {number} is of type {type(item).__name__!r}, not a text.",
                hint,
            )
    return without_surrogates("\n\n".join(item for item in value if item.strip()))


def _run_text(value: Any, roles: frozenset[str], keys: tuple[str, ...], path: _Path) -> str:
    """Return the text that `roles` wrote in `value`: the user's first, or the assistant's last."""
    if isinstance(value, str):
        return without_surrogates(value)
    if not _may_enter(value, path):
        return ""
    path = (*path, id(value))
    if _is_list(value):
        messages = [_fields(item) for item in value]
        if not any(_role(message) for message in messages):
            # Nothing says who wrote what, so all of it counts.
            kinds = map(_kind, messages)
            return _join(
                _text(item, path) if kind else _run_text(item, roles, keys, path)
                for item, kind in zip(value, kinds, strict=True)
            )
        said = [item for item, message in zip(value, messages, strict=True) if _role(message) in roles]
        texts = (_text(item, path) for item in (said if roles is _USER else reversed(said)))
        return next((text for text in texts if text.strip()), "")
    fields = _fields(value)
    role = _role(fields)
    if role in _ROLES:
        return _text(value, path[:-1]) if role in roles else ""
    if _is_text_part(fields) and (text := _text(value, path[:-1])):
        return text
    for key in keys:
        inner = fields.get(key)
        if key in ("choices", "candidates") and _is_list(inner):
            inner = inner[0] if inner else None  # further choices are other answers to the same request
        text = _run_text(inner, roles, keys, path)
        if text.strip():
            return text
    return ""


def _text(value: Any, path: _Path) -> str:
    if isinstance(value, str):
        return without_surrogates(value)
    if not _may_enter(value, path):
        return ""
    path = (*path, id(value))
    if _is_list(value):
        return _join(_text(item, path) for item in value)
    fields = _fields(value)
    kind = _kind(fields)
    if fields.get("thought") is True:  # Gemini marks reasoning so
        return ""
    if kind == "document":  # Anthropic: a text document attached to a message
        attached = _fields(fields.get("source"))
        data = attached.get("data") if attached.get("type") == "text" else attached.get("content")
        return _text(data, path)
    if kind and not _is_text_part(fields):
        return ""
    texts = (_text(fields.get(key), path) for key in _TEXT_KEYS)
    return next((text for text in texts if text.strip()), "")


def _tool_events(value: Any, path: _Path) -> Iterator[ToolResult | tuple[str, str]]:
    """Yield every tool result, and every (call id, tool name) that a tool call tells."""
    if not _may_enter(value, path):
        return
    path = (*path, id(value))
    if _is_list(value):
        for item in value:
            yield from _tool_events(item, path)
        return
    fields = _fields(value)
    if not fields:
        return
    kind = _kind(fields)
    if kind in _TOOL_CALLS:
        yield from _named_call(fields)
    for call in _items(fields.get("tool_calls")) + _items(fields.get("toolCalls")):
        yield from _named_call(_fields(call))
    if kind in _TOOL_RESULTS or kind.endswith("_tool_result"):
        yield _result(_fields(fields.get("payload")) or fields)
    elif kind == "tool-invocation" or "toolInvocation" in fields:
        yield from _invocation(_fields(fields.get("toolInvocation")))
    elif fields.get("state") is not None and _first(fields, ("toolCallId",)) is not None:
        yield from _invocation(fields)
    elif _first(fields, _NAME_KEYS[:2]) is not None and ("result" in fields or "output" in fields):
        yield _result(fields)
    elif "functionResponse" in fields or "function_response" in fields:
        yield _result(_fields(fields.get("functionResponse", fields.get("function_response"))))
    elif _role(fields) in _TOOL and not _holds_results(fields.get("content")) and "content" in fields:
        yield _result({key: inner for key, inner in fields.items() if key not in ("id", "result", "output")})
    else:
        for key in _NESTED_TOOL_KEYS:
            yield from _tool_events(fields.get(key), path)


def _invocation(fields: Mapping[str, Any]) -> Iterator[ToolResult]:
    """AI SDK: one record holds the call and, once its state says so, the result."""
    kind = _kind(fields)
    named = dict(fields)
    if kind.startswith("tool-") and kind != "tool-invocation":
        named.setdefault("toolName", kind.removeprefix("tool-"))
    if fields.get("state") in ("result", "output-available", None) and (
        "result" in fields or "output" in fields
    ):
        yield _result(named)


def _result(fields: Mapping[str, Any]) -> ToolResult:
    value = next((fields[key] for key in _VALUE_KEYS if key in fields), None)
    if isinstance(value, Mapping) and value.get("type") in ("text", "json", "content") and "value" in value:
        value = value["value"]  # AI SDK 5 wraps the result of a tool
    return ToolResult(_first(fields, _NAME_KEYS), value, _first(fields, _ID_KEYS))


def _named_call(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    fields = _fields(fields.get("payload")) or fields
    call_id = _first(fields, _ID_KEYS)
    name = _first(fields, _NAME_KEYS) or _first(_fields(fields.get("function")), _NAME_KEYS)
    if call_id is not None and name is not None:
        yield call_id, name


def _holds_results(content: Any) -> bool:
    return any(_kind(_fields(item)) in _TOOL_RESULTS for item in _items(content))


def _fields(value: Any) -> Mapping[str, Any]:
    """Return the fields of a message, part or container; empty for anything else.

    Attributes come before `model_dump()`: reading them is shallow, so neither a cycle nor a field that
    pydantic would warn about can get in the way.
    """
    if isinstance(value, Mapping):
        if "lc" in value and isinstance(value.get("kwargs"), Mapping):  # LangChain's own serialisation
            names = _items(value.get("id")) or [""]
            role = str(names[-1]).removesuffix("Chunk").removesuffix("Message").lower()
            return {"type": role, **value["kwargs"]}
        return value
    if isinstance(value, tuple) and len(value) == 2 and _name(value[0]).lower() in _ROLES:
        return {"role": value[0], "content": value[1]}  # LangChain: ("human", "...")
    if value is None or isinstance(value, str | bytes | int | float | Sequence | os.PathLike | Enum | type):
        return {}
    found = {name: getattr(value, name, None) for name in _ATTRIBUTES}
    found = {name: inner for name, inner in found.items() if inner is not None and not callable(inner)}
    if found:
        return found
    dump = getattr(value, "model_dump", None)
    dumped = dump() if callable(dump) else None
    return dumped if isinstance(dumped, Mapping) else {}


def _role(fields: Mapping[str, Any]) -> str:
    """Return the role of a message in lower case; empty if it has none."""
    for key in ("role", "type"):
        name = _name(fields.get(key)).lower()
        if (key == "role" and name) or name in _ROLES:
            return name
    return _KIND_TO_ROLE.get(_name(fields.get("kind")), "") if "parts" in fields else ""


def _kind(fields: Mapping[str, Any]) -> str:
    """Return what sort of part this is; empty for a message or a plain container."""
    kind = _name(fields.get("type")) or _name(fields.get("part_kind"))
    return "" if kind == "message" or kind.lower() in _ROLES else kind


def _is_text_part(fields: Mapping[str, Any]) -> bool:
    return _kind(fields) in _TEXT_PARTS


def _name(value: Any) -> str:
    if isinstance(value, Enum):
        value = value.value
    return value if isinstance(value, str) else ""


def _first(fields: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((fields[key] for key in keys if isinstance(fields.get(key), str) and fields[key]), None)


def _is_list(value: Any) -> bool:
    if isinstance(value, tuple) and _fields(value):
        return False
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)


def _items(value: Any) -> list[Any]:
    return list(value) if _is_list(value) else []


def _may_enter(value: Any, path: _Path) -> bool:
    return len(path) < _MAX_DEPTH and id(value) not in path


def _join(texts: Iterator[str]) -> str:
    """Join texts in order, with a line break where neither side of a seam has white space."""
    joined: list[str] = []
    for text in texts:
        if not text:
            continue
        if joined and not joined[-1][-1].isspace() and not text[0].isspace():
            joined.append("\n")
        joined.append(text)
    return "".join(joined)


def _type_name(value: Any) -> str:
    names = {type(None): "null", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    if _is_list(value):
        return "a list"
    return names.get(type(value), f"of type {type(value).__name__!r}")
