"""What is said of a bug: where it happened, and nothing that it happened with.

The message of a foreign exception may quote a document, and so may a warning or a log line of a library.
Knows nothing of scoring.
"""

import logging
import os
import sys
import threading
import traceback
import warnings
from types import TracebackType

_MESSAGES = "OFFLINE_SUMM_SHOW_MESSAGES"


def keep_messages_back() -> None:
    """Keep what libraries and threads would write to standard error of their own accord to themselves.

    Nothing changes where the environment variable OFFLINE_SUMM_SHOW_MESSAGES is 1. Options of Python that say
    what to do with warnings are honoured.
    """
    if _shows_messages():
        return
    logging.lastResort = None
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    threading.excepthook = lambda hook: None


def describe_bug(error: BaseException) -> str:
    """Return the lines that tell of an exception that nobody expected, with those that led to it.

    Args:
        error: it has been raised. Its message is left out, unless OFFLINE_SUMM_SHOW_MESSAGES is 1.
    """
    if _shows_messages():
        return "".join(traceback.format_exception(error)).rstrip()
    lines = ["An unexpected error:"]
    for each in _chain(error):
        lines += [f"  {place}" for place in _places(each.__traceback__)]
        lines.append(f"  {type(each).__name__}")
    lines.append(
        f"This is a bug. Its message is not shown, because it may quote a document; {_MESSAGES}=1 shows it."
    )
    return "\n".join(lines)


def _shows_messages() -> bool:
    return os.environ.get(_MESSAGES) == "1"


def _chain(error: BaseException) -> list[BaseException]:
    """Return the exceptions that led to one, the first first."""
    chain: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in chain:
        chain.insert(0, each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return chain


def _places(frames: TracebackType | None) -> list[str]:
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(frames)]
