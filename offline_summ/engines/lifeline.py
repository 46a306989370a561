"""Ties vLLM's child processes to the program that started them, so that none outlives it, however it ends.

A killed parent tells its children nothing: vLLM's would keep their memory, and a GPU, for good. vLLM calls
`tie_to_parent` in each of its processes, because pyproject.toml names it as a plugin of vLLM; the kernel then
kills the process when its parent dies. It acts only in processes that this package started.
"""

import contextlib
import os
from collections.abc import Iterator, MutableMapping

ROOT_VARIABLE = "OFFLINE_SUMM_ENGINE_ROOT"
_PLUGIN = "offline-summ"
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_SIGKILL = 9


@contextlib.contextmanager
def children_tied(environ: MutableMapping[str, str]) -> Iterator[None]:
    """Tie the vLLM processes that are started inside this context to this process.

    The kernel counts the thread that starts them as the parent, so that thread must live as long as they.

    Args:
        environ: the environment that they inherit, normally `os.environ`.
    """
    environ[ROOT_VARIABLE] = str(os.getpid())
    if environ.get("VLLM_PLUGINS") and _PLUGIN not in environ["VLLM_PLUGINS"].split(","):
        environ["VLLM_PLUGINS"] += f",{_PLUGIN}"
    try:
        yield
    finally:
        del environ[ROOT_VARIABLE]


def tie_to_parent() -> None:
    """Let the kernel kill this process when its parent dies. Called by vLLM in each of its processes."""
    root = int(os.environ.get(ROOT_VARIABLE, 0))
    if root in (0, os.getpid()):
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    # The parent may have died before the kernel was told.
    try:
        os.kill(root, 0)
    except ProcessLookupError:
        os._exit(1)
