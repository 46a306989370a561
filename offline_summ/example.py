"""What an example must be to be scored at all.

Knows nothing of judges but the length of their context.
"""

import unicodedata

from offline_summ.errors import ExampleError, UsageError
from offline_summ.schemas import Example

# No tokenizer packs more characters of prose into a token on average; far longer texts need no counting.
_MAX_CHARACTERS_PER_TOKEN = 50


def example_of(id: str | None, source: str, summary: str) -> Example:
    """Return the example.

    Raises:
        UsageError: the id cannot be written into a result.
    """
    if id is not None and (not isinstance(id, str) or any("\ud800" <= c <= "\udfff" for c in id)):
        raise UsageError(f"id is {id!r}.", "Give a string of valid characters, or None.")
    return Example(id=id, source=source, summary=summary)


def check(example: Example, context_length: int | None) -> None:
    """Refuse an example without asking a judge.

    Args:
        example: the example.
        context_length: tokens of the judge's context; None is without limit.

    Raises:
        ExampleError: kind `empty_source`, `empty_summary` or `source_too_long`.
    """
    if _is_blank(example.source):
        raise ExampleError("empty_source", "The source holds no text.", "Give a source with text.")
    if _is_blank(example.summary):
        raise ExampleError("empty_summary", "The summary holds no text.", "Give a summary with text.")
    characters = len(example.source) + len(example.summary)
    if context_length is not None and characters > _MAX_CHARACTERS_PER_TOKEN * context_length:
        raise ExampleError(
            "source_too_long",
            f"The texts have {characters} characters, too many for the judge's {context_length} tokens.",
            "Shorten the source, or use a judge with a longer context.",
        )


def _is_blank(text: str) -> bool:
    """Whether `text` has nothing but spaces, control and format characters, and replaced surrogates."""
    return not any(unicodedata.category(c)[0] in "LMNPS" and c != "\ufffd" for c in text)
