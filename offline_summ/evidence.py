"""Finds the passage that a judge quotes in the text it quotes from.

A judge copies with small mistakes, or makes a quotation up. What is handed on is always a passage of the
text itself; a quotation that is not there gives nothing. Knows nothing of judges and verdicts.
"""

import re
from typing import Literal

from offline_summ.schemas import Evidence

MIN_RATIO = 90.0
"""Least similarity of a quotation and its passage, from 0 to 100: rapidfuzz's normalised indel similarity."""

# A shorter quotation is similar to too much, and found inside too many words.
_SHORT = 4
# Letters of scripts that put spaces between words.
_SPACED = r"[^\W\u3040-\u9fff]"
_WORD_START = re.compile(rf"{_SPACED}*\Z")
_WORD_END = re.compile(rf"{_SPACED}*")
_LONGEST_WORD = 40


def locate(quote: str, text: str, *, within: Literal["source", "summary"]) -> Evidence | None:
    """Return the first passage of `text` that `quote` quotes, or None if there is none.

    Looks for the same characters, then for the same words with any white space between them, then for the
    passage most similar to the quotation, if it is similar enough.

    Args:
        quote: what the judge wrote.
        text: the text.
        within: name of the text.
    """
    quote = quote.strip()
    if len(quote) >= _SHORT:
        found = _exact(quote, text) or _similar(quote, text)
    else:
        found = _exact_words(quote, text) if quote else None
    start, end = found or (0, 0)
    passage = text[start:end]
    start += len(passage) - len(passage.lstrip())
    passage = passage.strip()
    if not passage:
        return None
    return Evidence.model_validate(
        {"in": within, "start": start, "end": start + len(passage), "quote": passage}
    )


def _exact(quote: str, text: str) -> tuple[int, int] | None:
    start = text.find(quote)
    if start >= 0:
        return start, start + len(quote)
    words = re.search(r"\s+".join(map(re.escape, quote.split())), text)
    return words.span() if words else None


def _exact_words(quote: str, text: str) -> tuple[int, int] | None:
    words = re.search(rf"(?<!{_SPACED}){re.escape(quote)}(?!{_SPACED})", text)
    return words.span() if words else None


def _similar(quote: str, text: str) -> tuple[int, int] | None:
    from rapidfuzz.distance import Indel
    from rapidfuzz.fuzz import partial_ratio_alignment

    if len(quote) > len(text):
        # The alignment looks for the shorter one of the two, and the whole text may be what is quoted.
        if Indel.normalized_similarity(quote, text) * 100 < MIN_RATIO:
            return None
        return 0, len(text)
    found = partial_ratio_alignment(quote, text, score_cutoff=MIN_RATIO)
    if found is None:
        return None
    # The window is as long as the quotation: what of it nothing was quoted from goes.
    window = text[found.dest_start : found.dest_end]
    quoted = Indel.editops(quote, window).as_matching_blocks()
    start, last = quoted[0].b, quoted[-2]
    return _whole_words(text, found.dest_start + start, found.dest_start + last.b + last.size)


def _whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Widen a passage that begins or ends inside a word."""
    before = text[max(start - _LONGEST_WORD, 0) : start]
    if _WORD_END.match(text, start, end).end() > start:  # type: ignore[union-attr]
        start -= len(_WORD_START.search(before).group())  # type: ignore[union-attr]
    if _WORD_START.search(text[start:end]).group():  # type: ignore[union-attr]
        end += len(_WORD_END.match(text[end : end + _LONGEST_WORD]).group())  # type: ignore[union-attr]
    return start, end
