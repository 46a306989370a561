"""Ties the processes that vLLM starts to the program that started them, so that none outlives it.

A killed parent tells its children nothing: vLLM's would keep their memory, and a GPU, for good. Here the
kernel is asked to kill each child when its parent dies, as the first thing that the child does. The workers
that vLLM's children start in turn watch their parent themselves. Linux only; elsewhere it does nothing.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from multiprocessing import spawn
from typing import Any

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_SIGKILL = 9


@contextlib.contextmanager
def children_tied() -> Iterator[None]:
    """Tie the child processes that are started inside this context to this process, spawned or forked.

    The kernel counts the thread that starts them as the parent, so that thread must live as long as they.
    """
    if sys.platform != "linux":
        yield
        return
    parent, original = os.getpid(), spawn.get_command_line
    inside = True

    def tie_forked_child() -> None:
        if inside:
            _tie(parent)

    def command_line(**arguments: Any) -> list[str]:
        line: list[str] = original(**arguments)
        program = line.index("-c") + 1
        line[program] = (
            f"import ctypes, os; ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {_SIGKILL}); "
            f"os.getppid() == {parent} or os._exit(1); {line[program]}"
        )
        return line

    os.register_at_fork(after_in_child=tie_forked_child)
    spawn.get_command_line = command_line
    try:
        yield
    finally:
        spawn.get_command_line = original
        inside = False


def _tie(parent: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    # The parent may have died before the kernel was told.
    if os.getppid() != parent:
        os._exit(1)
