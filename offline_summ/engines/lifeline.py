"""What the processes that vLLM starts do first: close their network, and tie themselves to this program.

A killed parent tells its children nothing: vLLM's would keep their memory, and a GPU, for good. So the kernel
is asked to kill each child when its parent dies; Linux only. The workers that vLLM's children start in turn
watch their parent themselves, and inherit the closed network.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from multiprocessing import spawn
from typing import Any

from offline_summ.airgap import close_forked_child, closed_command_line
from offline_summ.schemas import Network

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_SIGKILL = 9


@contextlib.contextmanager
def children_prepared(how: Network) -> Iterator[None]:
    """Close the network of the child processes that are started inside this context, and tie them.

    The kernel counts the thread that starts them as the parent, so that thread must live as long as they.

    Args:
        how: how their network is closed, as `airgap.engine_network` says.
    """
    parent, original = os.getpid(), spawn.get_command_line
    inside = True

    def prepare_forked_child() -> None:
        if inside:
            close_forked_child(how)  # first: the kernel forgets the tie when a process changes its rights
            _tie(parent)

    def command_line(**arguments: Any) -> list[str]:
        line: list[str] = original(**arguments)
        program = line.index("-c") + 1
        if sys.platform == "linux":
            line[program] = (
                f"import ctypes, os; ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {_SIGKILL}); "
                f"os.getppid() == {parent} or os._exit(1); {line[program]}"
            )
        return closed_command_line(line, how)

    os.register_at_fork(after_in_child=prepare_forked_child)
    spawn.get_command_line = command_line
    try:
        yield
    finally:
        spawn.get_command_line = original
        inside = False


def _tie(parent: int) -> None:
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    # The parent may have died before the kernel was told.
    if os.getppid() != parent:
        os._exit(1)
