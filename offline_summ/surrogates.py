"""Makes text of strings that hold halves of characters, so that results can be written as UTF-8.

Knows nothing of where strings come from.
"""

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def without_surrogates(text: str) -> str:
    """Return `text` with each surrogate pair as its character, and each lone surrogate as U+FFFD."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
