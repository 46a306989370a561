"""Reads labelled examples: sources and summaries whose sentences and key facts people have judged.

One JSON object a line: `source`, `summary`, and what is optional: `id`, `lang`, `sentences` (each `text` and
`supported`) and `key_facts` (each `text` and `covered`). Other keys are ignored. No error quotes document
text. Knows nothing of judges and of what the labels are for.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offline_summ.calibration import ALL_LANGUAGES, Axis
from offline_summ.documents import read_document
from offline_summ.errors import InputError

_SHAPE = (
    'A line is {"source": "...", "summary": "...", "sentences": [{"text": "...", "supported": true}], '
    '"key_facts": [{"text": "...", "covered": false}]}.'
)
_LISTS: tuple[tuple[Axis, str, str], ...] = (
    ("alignment", "sentences", "supported"),
    ("coverage", "key_facts", "covered"),
)


@dataclass(frozen=True)
class LabelledItem:
    """One sentence of a summary or key fact of a source, with the judgement of people.

    Attributes:
        document: SHA-256 of the source in hex, the same for all summaries of one source.
        row: the `id` of its line, else name of the file and number of the line.
        axis: "alignment" for a sentence, "coverage" for a key fact.
        language: its `lang`; None if the line has none.
        source: the source.
        summary: the summary.
        text: the sentence or key fact.
        label: supported, or covered.
    """

    document: str
    row: str
    axis: Axis
    language: str | None
    source: str
    summary: str
    text: str
    label: bool


def read_labelled(paths: Sequence[Path]) -> list[LabelledItem]:
    r"""Return the labelled items of JSON Lines files, in their order.

    A byte-order mark, `\r\n` and blank lines are accepted; so are lines that label nothing.

    Raises:
        InputError: a file cannot be read or labels nothing, or a line is not of the shape above; the message
            names file and line.
    """
    return [item for path in paths for item in _read_file(path)]


def _read_file(path: Path) -> list[LabelledItem]:
    items: list[LabelledItem] = []
    for number, line in enumerate(read_document(path).split("\n"), start=1):
        if line.strip():
            items += _Row(path, number, line).items()
    if not items:
        raise InputError(f"{str(path)!r} has no labelled item.", _SHAPE)
    return items


class _Row:
    """One line of a file, which knows where it stands so that its errors can say so."""

    def __init__(self, path: Path, number: int, line: str) -> None:
        self._place = f"{str(path)!r}, line {number}"
        self._name = f"{path.name}:{number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise self._wrong(
                f"not JSON, {error.msg.lower().removesuffix(' at')} in column {error.colno}"
            ) from None
        except (RecursionError, ValueError):
            raise self._wrong("JSON that is nested too deep or holds a number too long") from None
        if not isinstance(row, dict):
            raise self._wrong("not a JSON object")
        self._row: dict[str, Any] = row

    def items(self) -> Iterator[LabelledItem]:
        source, summary = (self._text(self._row, key, key) for key in ("source", "summary"))
        document = hashlib.sha256(source.encode()).hexdigest()
        row, language = self._id(), self._language()
        for axis, key, label in _LISTS:
            for position, entry in enumerate(self._list(key)):
                name = f"{key}[{position}]"
                if not isinstance(entry, dict):
                    raise self._wrong(f"{name!r} is not an object")
                text = self._text(entry, "text", f"{name}.text")
                if not isinstance(entry.get(label), bool):
                    raise self._wrong(f"'{name}.{label}' is not true or false")
                yield LabelledItem(document, row, axis, language, source, summary, text, entry[label])

    def _id(self) -> str:
        value = self._row.get("id")
        if value is None:
            return self._name
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise self._wrong("'id' is not a string")
        return str(value)

    def _language(self) -> str | None:
        if self._row.get("lang") is None:
            return None
        language = self._text(self._row, "lang", "lang")
        if language == ALL_LANGUAGES:
            raise self._wrong(f"'lang' is {ALL_LANGUAGES!r}, not a code such as 'en'")
        return language

    def _list(self, key: str) -> list[Any]:
        value = self._row.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._wrong(f"{key!r} is not a list")
        return value

    def _text(self, holder: dict[str, Any], key: str, name: str) -> str:
        value = holder.get(key)
        if value is None:
            raise self._wrong(f"{name!r} is missing")
        if not isinstance(value, str):
            raise self._wrong(f"{name!r} is not a string")
        if not value.strip():
            raise self._wrong(f"{name!r} is blank")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise self._wrong(f"{name!r} holds half of a surrogate pair, which is not text")
        return value

    def _wrong(self, what: str) -> InputError:
        return InputError(f"{self._place}: {what}.", _SHAPE)
