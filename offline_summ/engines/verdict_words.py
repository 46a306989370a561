"""The probabilities of verdict words, from the probabilities of the tokens that begin them.

Knows nothing of vLLM but the shape of its log probabilities.
"""

import math
from collections.abc import Mapping
from typing import Any

from offline_summ.errors import JudgeError

_TELLING_MASS = 0.98


def word_probabilities(logprobs: Any, words: tuple[str, ...]) -> Mapping[str, float]:
    """Return the probability of each word from its first token, renormalised over the words.

    The grammar leaves only prefixes of the words, and the mass on a prefix ("Y", "Ye") belongs to its word,
    in whatever case it is written.

    Raises:
        JudgeError: the judge's tokens cut the words inside a character, so that they cannot be told apart.
    """
    mass = dict.fromkeys(words, 0.0)
    for entry in logprobs[0].values():
        piece = (entry.decoded_token or "").strip().casefold()
        matching = [word for word in words if piece and word.casefold().startswith(piece)]
        if len(matching) == 1 and math.isfinite(entry.logprob):
            mass[matching[0]] += math.exp(entry.logprob)
    total = sum(mass.values())
    if total < _TELLING_MASS:
        raise JudgeError(
            f"The judge's tokens do not tell the words {' and '.join(map(repr, words))} apart.",
            "Use prompts whose words for yes and no are Latin letters.",
        )
    return {word: value / total for word, value in mass.items()}
