"""One record of an input, of whatever format, to one row to score, or to what is wrong with it.

A record is a mapping from column to value: a JSON object, or a line of a table. What is wrong costs its own
row only. No message quotes a text. Knows nothing of files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offline_summ import messages
from offline_summ.errors import InputError, UsageError
from offline_summ.options import checked_questions
from offline_summ.surrogates import without_surrogates

_RUN_KEYS = (("input", "output"), ("runInput", "runOutput"))


@dataclass(frozen=True)
class Columns:
    """Names of the columns, or keys, that hold what is scored.

    Attributes:
        source: the source: a text, or a list of context texts.
        summary: the summary.
        id: what the result is called; a column that is absent gives none.
        questions: questions to ask instead of drawn ones: a list of texts, or a text with one a line; a
            column that is absent gives none.
    """

    source: str = "source"
    summary: str = "summary"
    id: str = "id"
    questions: str = "questions"


_USUAL = Columns()


@dataclass(frozen=True)
class Row:
    """One example of a run.

    Attributes:
        number: its place in the input, from 1.
        id: what its result is called.
        source: the source.
        summary: the summary.
        questions: the questions to ask instead of drawn ones.
        problem: why it cannot be scored; None if it can.
        text_sha256: digest of id, texts and questions; None where nobody asks.
        settings_sha256: digest of all else that its score depends on; None where nobody asks.
    """

    number: int
    id: str | None = None
    source: str = ""
    summary: str = ""
    questions: tuple[str, ...] | None = None
    problem: str | None = None
    text_sha256: str | None = None
    settings_sha256: str | None = None


def row_of(number: int, record: object, columns: Columns) -> Row:
    """Return the row that a record is.

    A record with an `input` and an `output` (or `runInput` and `runOutput`) instead of source and summary is
    a run: its source is the first user message, its summary the last assistant message.
    """
    if not isinstance(record, Mapping):
        return Row(number, problem=f"It is no object with columns, but of type {_type_of(record)}.")
    id: str | None = None
    try:
        for column, usual in ((columns.id, _USUAL.id), (columns.questions, _USUAL.questions)):
            if column != usual and column not in record:
                raise _Problem(f"Column {column!r} is missing.")
        id = _id(record.get(columns.id), columns.id)
        source, summary = _texts(record, columns)
        questions = _questions(record.get(columns.questions), columns.questions)
    except _Problem as problem:
        return Row(number, id, problem=str(problem))
    return Row(number, id, source, summary, questions)


class _Problem(Exception):
    """What is wrong with a record, as a sentence."""


def _id(value: Any, column: str) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _Problem(f"Column {column!r} is of type {_type_of(value)}; give a text or a whole number.")
    try:
        id = str(value)
    except ValueError:  # more digits than Python converts
        raise _Problem(f"Column {column!r} is a number with too many digits.") from None
    if not id.isprintable():
        raise _Problem(f"Column {column!r} holds characters that are not printable.")
    return id


def _texts(record: Mapping[Any, Any], columns: Columns) -> tuple[str, str]:
    if columns.source not in record and columns.summary not in record:
        for input_key, output_key in _RUN_KEYS:
            if input_key in record and output_key in record:
                source = messages.source_of(record[input_key], None)
                return _whole(source, input_key), _whole(messages.summary_of(record[output_key]), output_key)
    return _source(record, columns.source), _text(record, columns.summary)


def _source(record: Mapping[Any, Any], column: str) -> str:
    value = record.get(column)
    if not isinstance(value, list | tuple):
        return _text(record, column)
    for number, text in enumerate(value, start=1):
        if not isinstance(text, str):
            raise _Problem(f"Column {column!r}, text {number}, is of type {_type_of(text)}, not a text.")
    return _whole(messages.source_of(None, None, source=value), column)


def _text(record: Mapping[Any, Any], column: str) -> str:
    value = record.get(column)
    if value is None:
        raise _Problem(f"Column {column!r} is {'empty' if column in record else 'missing'}.")
    if not isinstance(value, str):
        raise _Problem(f"Column {column!r} is of type {_type_of(value)}, not a text.")
    return _whole(value, column)


def _whole(text: str, column: str) -> str:
    """Refuse NUL, which no text holds; half a character (legal in JSON) is replaced, as in a run."""
    if "\0" in text:
        raise _Problem(f"Column {column!r} holds NUL characters, so it is no text.")
    return without_surrogates(text)


def _questions(value: Any, column: str) -> tuple[str, ...] | None:
    if value is None or value == "":
        return None
    if isinstance(value, str):
        value = [line for line in value.splitlines() if line.strip()]
    try:
        return checked_questions(value)
    except UsageError as error:
        raise _Problem(f"Column {column!r}: {error.message[:1].lower()}{error.message[1:]}") from None


def _type_of(value: object) -> str:
    names = {dict: "object", list: "list", bool: "true/false", int: "number", float: "number", str: "text"}
    return names.get(type(value), type(value).__name__)


def refuse_missing(columns: Columns, present: Sequence[str], name: str) -> None:
    """Refuse a table that lacks a column.

    Raises:
        InputError: it does; the message counts the columns it has, and names none of them: where a table has
            no header, its first line is text of a document.
    """
    needed = [columns.source, columns.summary]
    if any(first in present and second in present for first, second in _RUN_KEYS):
        needed = []
    for column, usual in ((columns.id, _USUAL.id), (columns.questions, _USUAL.questions)):
        needed += [column] if column != usual else []
    for column in needed:
        if column not in present:
            raise InputError(
                f"{name!r} has no column {column!r} among the {len(present)} of its first line.",
                "Give it a header, or name its columns with --source-column, --summary-column, --id-column "
                "and --questions-column.",
            )
