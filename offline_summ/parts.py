"""Cuts a text into sentences, and into parts of about equal length at the ends of sentences.

Knows nothing of judges.
"""

import re

# Ends of sentences in Western, Arabic, Indic, Ethiopic and East Asian writing; what follows a line break
# begins anew.
_SENTENCE = re.compile(r".*?(?:[.!?…؟۔।॥።][\"'”’)\]]*(?=\s)|[。！？][」』”]*|\n|\Z)\s*", re.DOTALL)
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_CJK_CHARACTERS_PER_WORD = 2
_LONGEST_SENTENCE = 400
_PIECE = re.compile(rf".{{1,{_LONGEST_SENTENCE}}}(?:\s|\Z)|.{{{_LONGEST_SENTENCE}}}", re.DOTALL)


def sentences_of(text: str) -> list[str]:
    """Return the sentences and lines of `text` without outer white space; overlong ones in pieces."""
    found = (sentence.strip() for sentence in _SENTENCE.findall(text))
    return [piece.strip() for sentence in found if sentence for piece in _PIECE.findall(sentence)]


def parts_of(text: str, *, words: int, at_most: int) -> list[str]:
    """Cut `text` into parts of about `words` words each; nothing of it is lost but outer white space.

    Args:
        text: the text.
        words: wanted length of a part; two Japanese or Chinese characters count as one word.
        at_most: most parts; at least 1.

    Returns:
        One part or more, in order, none of them blank unless the text is.
    """
    found = (sentence for sentence in _SENTENCE.findall(text) if sentence.strip())
    sentences = [piece for sentence in found for piece in _PIECE.findall(sentence)]
    lengths = [word_count(sentence) for sentence in sentences]
    count = max(1, min(at_most, len(sentences), round(sum(lengths) / words)))
    parts, done, whole = [""], 0.0, sum(lengths)
    for sentence, length in zip(sentences, lengths, strict=True):
        # A sentence belongs to the part in which its middle lies.
        part = min(int((done + length / 2) * count / max(whole, 1)), count - 1)
        if part >= len(parts) and parts[-1]:
            parts.append("")
        parts[-1] += sentence
        done += length
    return [part.strip() for part in parts]


def word_count(text: str) -> float:
    """Return the words of a text; two Japanese or Chinese characters count as one word."""
    characters = len(_CJK.findall(text))
    return len(_CJK.sub(" ", text).split()) + characters / _CJK_CHARACTERS_PER_WORD
