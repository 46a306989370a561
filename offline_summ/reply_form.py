"""The parts that a reply is made of: what a grammar allows of them, and where a cut reply can go on.

A form is a tuple of parts. The same parts give the Outlines output type that constrains the judge and tell
how far a reply has come. A cut reply is never thrown away and never filled in: a text that explains is
closed where it was cut, an unfinished item of a list is dropped, what the grammar forces is written out, and
the next thing that the judge has to decide becomes a form of its own. Knows nothing of what the texts mean.
"""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from outlines.types.dsl import Term

# One JSON string of printable text on one line: spaces only between other characters and never two in a row
# (a judge that falls into a loop falls into whitespace first), `\"` and `\\` as the only escapes.
_SPACE = r"[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]"
_CHARACTER = r'(?:[^"\\ \x00-\x1f\x7f-\x9f\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]|\\["\\])'
# The first character is no dot either: a small judge copies the "..." of the form that it is shown.
_FIRST = _CHARACTER.replace("[^", "[^.\\u2026", 1)
TEXT_PATTERN = f'"{_FIRST}(?:{_SPACE}?{_CHARACTER})*"'

_WHOLE_TEXT = re.compile(TEXT_PATTERN)
_BEGUN_TEXT = re.compile(f'(?:"(?:\\\\|{_FIRST}(?:{_SPACE}?{_CHARACTER})*(?:{_SPACE}?\\\\|{_SPACE})?)?)?')
_SPACES = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_SHORT_REASON = 12


@dataclass(frozen=True)
class Fixed:
    """What stands there whatever the judge says: punctuation, field names, ids."""

    text: str


@dataclass(frozen=True)
class Word:
    """A decision: one of these words, none of which begins another."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Text:
    """A JSON string in the judge's own words.

    Attributes:
        name: what a caller is told if the text is cut.
        max_tokens: its share of the reply's budget.
        max_characters: its limit where a grammar can count characters; spaces are not counted.
        explains: whether the beginning of the text is worth keeping when the rest is missing. Half a reason
            is; half a claim is another claim.
        opening: the words that the text begins with whatever the judge says.
    """

    name: str
    max_tokens: int
    max_characters: int
    explains: bool = False
    opening: str = ""


@dataclass(frozen=True)
class Items:
    """A list of equal items, separated by commas. Lists do not lie inside lists.

    Attributes:
        name: what a caller is told if the list is cut.
        item: the form of one item; it begins with a text, or with fixed text.
        at_least: fewest items.
        at_most: most items.
    """

    name: str
    item: tuple[Fixed | Word | Text, ...]
    at_least: int
    at_most: int


@dataclass(frozen=True)
class _Begun:
    """A list that has items already."""

    items: Items
    done: int


@dataclass(frozen=True)
class _OneMore:
    """One more item of a begun list, or what follows the list."""

    item: tuple[Fixed | Word | Text, ...]
    end: str


Part: TypeAlias = Fixed | Word | Text | Items | _OneMore
Form: TypeAlias = tuple[Part, ...]
_Rest: TypeAlias = deque[Part | _Begun]


@dataclass(frozen=True)
class Resumption:
    """How a reply goes on.

    Attributes:
        kept: what stays of the reply, with what the grammar forces after it.
        following: the form of the next piece, which the judge has to write; () if `kept` is a whole reply.
        cut: names of texts that were closed, and of lists that were ended, where the reply was cut.
    """

    kept: str
    following: Form = ()
    cut: frozenset[str] = frozenset()


def is_at_limit(part: Text, text: str) -> bool:
    """Whether a text has as many characters as `part` lets it have, so that a grammar may have ended it."""
    return sum(character not in _SPACES for character in text) >= part.max_characters


def max_tokens(form: Sequence[Part]) -> int:
    """Return the budget of a form in tokens: half of its fixed characters, and what its texts may take."""
    return sum(_tokens(part) for part in form)


def _tokens(part: Part) -> int:
    match part:
        case Fixed(text):
            return len(text) // 2 + 1
        case Word(words):
            return max(map(len, words)) + 1
        case Text():
            return part.max_tokens
        case Items():
            return part.at_most * max_tokens(part.item)
        case _OneMore(item, end):
            return max_tokens(item) + len(end) // 2 + 2


def min_tokens(form: Sequence[Part]) -> int:
    """Return the tokens that the shortest reply worth having takes: one item a list, and short reasons."""
    return sum(_fewest(part) for part in form)


def _fewest(part: Part) -> int:
    match part:
        case Text(_, tokens, explains=explains):
            return min(tokens, _SHORT_REASON) if explains else tokens
        case Items(_, item, _, at_most):
            return min_tokens(item) if at_most else 0
        case _:
            return _tokens(part)


def continuations(form: Form) -> tuple[Form, ...]:
    """Return every form that `resume` may ask for after a cut of such a reply."""
    sample, found = _sample(form), dict[Form, None]()
    for more in (True, False):
        for end in range(len(sample)):
            resumption = resume(form, sample[:end], more=more)
            if resumption is not None and resumption.following:
                found.setdefault(resumption.following)
    return tuple(found)


def _sample(form: Sequence[Part]) -> str:
    """Return a reply of this form with two items a list."""
    pieces = []
    for part in form:
        match part:
            case Fixed(text):
                pieces.append(text)
            case Word(words):
                pieces.append(words[0])
            case Text(opening=opening):
                pieces.append(f'"{opening}x"')
            case Items(_, item, _, at_most):
                pieces.append(",".join([_sample(item)] * min(2, at_most)))
    return "".join(pieces)


def output_type(form: Sequence[Part], *, bounded: bool) -> "Term":
    """Return the Outlines output type of a form.

    Args:
        form: the form.
        bounded: whether texts end at their limit of characters. Outlines' own index cannot count that far.
    """
    from outlines.types.dsl import String

    whole: Term = String("")
    for part in form:
        whole = whole + _term(part, bounded)
    return whole


def _term(part: Part, bounded: bool) -> "Term":
    from outlines.types import Regex
    from outlines.types.dsl import String, between, either, optional

    match part:
        case Fixed(text):
            return String(text)
        case Word(words):
            return Regex(f"({'|'.join(map(re.escape, words))})")
        case Text(opening=opening):
            pattern = _bounded(part.max_characters) if bounded else TEXT_PATTERN
            return Regex(f'"{re.escape(opening)}{pattern[1:]}' if opening else pattern)
        case _OneMore(item, end):
            return either(String(",") + output_type(item, bounded=bounded), String(end))
        case Items(_, item, at_least, at_most):
            if at_most == 0:
                return String("")
            one = output_type(item, bounded=bounded)
            if at_most == 1:
                return one if at_least else optional(one)
            some: Term = one + between(max(at_least - 1, 0), at_most - 1, String(",") + one)
            return some if at_least else optional(some)


def _bounded(characters: int) -> str:
    return TEXT_PATTERN.replace(')*"', f'){{0,{characters - 1}}}"')


def resume(form: Form, reply: str, *, more: bool = True) -> Resumption | None:
    """Return how a reply goes on that was cut somewhere, or None if it cannot.

    It cannot if the cut lies in a text that must not be cut, and no item of its list is complete.

    Args:
        form: the form of the whole reply.
        reply: the beginning of such a reply.
        more: whether a begun list may get further items; without, it ends with its last complete one.

    Raises:
        ValueError: `reply` is no beginning of such a reply.
    """
    return _Reading(form, reply).resumption(more)


class _Reading:
    """Walks along a form and a reply until one of them ends."""

    def __init__(self, form: Form, reply: str) -> None:
        self._reply = reply
        self._at = 0
        self._rest: _Rest = deque(form)
        self._cut: set[str] = set()
        # Of the item that is being read: the begun list up to before it, where that ends, and what follows.
        self._item: tuple[_Begun, int, _Rest] | None = None
        while self._rest and self._advance():
            pass
        if not self._rest and self._at < len(reply):
            raise ValueError("the reply goes on after its end")

    def resumption(self, more: bool) -> Resumption | None:
        kept, rest = self._reply[: self._at], self._rest
        unfinished = rest[0] if rest else None
        closed = None
        if isinstance(unfinished, Text):
            closed = _closed(self._reply[self._at :], unfinished.opening)
        if isinstance(unfinished, Text) and unfinished.explains and closed is not None:
            kept += closed
            rest.popleft()
            self._cut.add(unfinished.name)
        elif isinstance(unfinished, Word):
            begun_words = [word for word in unfinished.words if word.startswith(self._reply[self._at :])]
            if len(begun_words) == 1:  # the judge has decided, and only the spelling is missing
                kept += begun_words[0]
                rest.popleft()
        elif self._item is not None and self._lacks_text():
            begun, end, after = self._item
            if begun.done >= max(begun.items.at_least, 1):
                self._cut.add(begun.items.name)
                kept, self._rest = self._reply[:end], after
            elif closed is not None:
                return None
        elif closed is not None:
            return None
        return self._next(kept, more)

    def _lacks_text(self) -> bool:
        """Whether the item that is being read has not all of the text that it is about."""
        for part in self._rest:
            if isinstance(part, _Begun):
                return False
            if isinstance(part, Text) and not part.explains:
                return True
        return False

    def _next(self, kept: str, more: bool) -> Resumption:
        rest, following = self._rest, list[Part]()
        while rest and not following:
            part = rest.popleft()
            match part:
                case Fixed(text):
                    kept += text
                case _Begun(items, done) if done == items.at_most:
                    pass
                case _Begun(items) if not more:
                    self._cut.add(items.name)
                case _Begun(items):
                    end = rest.popleft()
                    assert isinstance(end, Fixed), "a list is followed by fixed text"
                    following.append(_OneMore(items.item, end.text))
                case Items():
                    following.append(part)
                    if rest and isinstance(rest[0], Fixed):
                        following.append(rest[0])
                case Word():
                    following.append(part)
                    for after in rest:
                        if isinstance(after, Fixed | Text):
                            following.append(after)
                        if not isinstance(after, Fixed):
                            break
                case _:
                    following.append(part)
        return Resumption(kept, tuple(following), frozenset(self._cut))

    def _advance(self) -> bool:
        """Go past the next part; False if the reply ends in it."""
        part, tail = self._rest[0], self._reply[self._at :]
        match part:
            case Fixed(text):
                return self._past([text], tail)
            case Word(words):
                return self._past(words, tail)
            case Text():
                whole = _WHOLE_TEXT.match(self._reply, self._at)
                if whole is None and _BEGUN_TEXT.fullmatch(tail) is None:
                    raise ValueError(f"no text at character {self._at}")
                return self._past([whole.group()] if whole else [], tail)
            case Items():
                return self._into_list(_Begun(part, 0), tail)
            case _Begun():
                return self._into_list(part, tail)
        raise AssertionError("unreachable")

    def _past(self, words: Sequence[str], tail: str) -> bool:
        for word in words:
            if tail.startswith(word):
                self._rest.popleft()
                self._at += len(word)
                return True
        if words and not any(word.startswith(tail) for word in words):
            raise ValueError(f"nothing that the form allows at character {self._at}")
        return False

    def _into_list(self, begun: _Begun, tail: str) -> bool:
        items, done = begun.items, begun.done
        self._item = None
        if not tail and done < items.at_most:
            return False
        self._rest.popleft()
        if done == items.at_most or not tail.startswith("," if done else _first_character(items.item)):
            if done < items.at_least:
                raise ValueError(f"too short a list at character {self._at}")
            return True
        self._item = (begun, self._at, deque(self._rest))
        self._at += 1 if done else 0
        self._rest.extendleft(reversed((*items.item, _Begun(items, done + 1))))
        return True


def _first_character(item: Sequence[Part]) -> str:
    first = item[0]
    return first.text[0] if isinstance(first, Fixed) else '"'


def _closed(begun: str, opening: str) -> str | None:
    """Return a begun text with its end, or None if only its opening is there; half an escape is dropped."""
    if (len(begun) - len(begun.rstrip("\\"))) % 2:
        begun = begun[:-1]
    begun = begun.rstrip(_SPACES)
    return f'{begun}"' if len(begun) > 1 + len(opening) else None
