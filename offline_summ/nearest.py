"""Finds the sentences of a text that are nearest to a claim or question.

Knows nothing of judges.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from offline_summ.parts import sentences_of

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]|\w+")


class NearestPassages:
    """The sentences of one text, ready to be searched.

    A sentence is as near to an item as the words and word pairs that both have weigh together: log(1 + n / f)
    each, with n sentences of which f have it. Length is not normalised: a judge reads a long sentence that
    holds everything more rightly than short ones that resemble the item (docs/experiments.md). Japanese and
    Chinese characters count as words.
    """

    def __init__(self, text: str, *, count: int) -> None:
        """Split the text.

        Args:
            text: the text.
            count: sentences to find.
        """
        self._count = count
        self._sentences = sentences_of(text)
        self._terms = [_terms(sentence) for sentence in self._sentences]
        self._frequencies = Counter(term for terms in self._terms for term in terms)

    def of(self, item: str) -> str | None:
        """Return the sentences nearest to `item` in the order of the text, or None if all would be.

        Of equally near sentences the first ones are taken.
        """
        if len(self._sentences) <= self._count:
            return None
        wanted = _terms(item)
        order = sorted(range(len(self._sentences)), key=lambda i: -self._nearness(wanted, i))
        return " ".join(" ".join(self._sentences[i].split()) for i in sorted(order[: self._count]))

    def _nearness(self, wanted: frozenset[str | tuple[str, str]], sentence: int) -> float:
        shared = wanted & self._terms[sentence]
        return math.fsum(math.log1p(len(self._sentences) / self._frequencies[term]) for term in shared)


def nearest_passages(text: str, items: Sequence[str], *, count: int) -> list[str | None]:
    """Return `NearestPassages.of` for each of the items."""
    nearest = NearestPassages(text, count=count)
    return [nearest.of(item) for item in items]


def _terms(text: str) -> frozenset[str | tuple[str, str]]:
    words = _WORD.findall(text.casefold())
    return frozenset((*words, *pairwise(words)))
