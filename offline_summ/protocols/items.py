"""Lists that a judge writes: repeated items, items cut by the grammar, and items shown in a prompt.

Shared by the protocols. Knows nothing of prompts and engines.
"""

from collections.abc import Sequence

from offline_summ.errors import ExampleError
from offline_summ.reply_form import Text, is_at_limit


def first_of_each(texts: Sequence[str]) -> list[int]:
    """Return the positions of texts that no earlier one repeats word for word, in any case."""
    seen: dict[str, int] = {}
    for position, text in enumerate(texts):
        seen.setdefault(one_line(text).lower(), position)
    return sorted(seen.values())


def whole_ones(part: Text, texts: Sequence[str]) -> list[int]:
    """Return the positions of texts below their limit of characters: at it, they may have been cut.

    Raises:
        ExampleError: kind `truncated_reply`: there are texts, and all are at the limit.
    """
    kept = [i for i, text in enumerate(texts) if not is_at_limit(part, text)]
    if texts and not kept:
        raise ExampleError(
            "truncated_reply",
            f"Every one of the judge's {part.name} runs into its limit of characters.",
            "Use a stronger judge, or a shorter text.",
        )
    return kept


def one_line(text: str) -> str:
    """Return `text` with every run of white space as one space."""
    return " ".join(text.split())
