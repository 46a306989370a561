"""Which engine runs the judge that somebody named, and how it is stopped.

Knows nothing of protocols and scores.
"""

import contextlib
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from offline_summ.airgap import Airgap, check, process_network
from offline_summ.engines.base import Engine
from offline_summ.engines.vllm import VLLMEngine
from offline_summ.errors import UsageError
from offline_summ.judges import GrammarBackend, Judge, load_registry, resolve_judge
from offline_summ.loop import LoopThread
from offline_summ.weights import open_judge
from offline_summ.weights_files import OnProgress

INTERRUPT_TIMEOUT_S = 1.0


def judge_of(model: str | Path | Judge | Engine | None, models: Sequence[Path]) -> Judge | Engine:
    """Return the judge that is meant, or the engine that is given.

    Args:
        model: name of a judge, a folder with a model, a `Judge`, or an engine; None is the default judge.
        models: files in the format of models.toml with judges of one's own.

    Raises:
        UsageError: there is no such judge.
        WeightsError: a model folder lacks something that a judge needs.
    """
    if model is not None and not isinstance(model, str | Path | Judge):
        if not hasattr(model, "generate"):
            raise UsageError(
                f"model is of type {type(model).__name__}.", "Give a judge's name, a folder, or an engine."
            )
        return model
    if isinstance(model, Judge):
        return model
    registry = load_registry(*models)
    return resolve_judge(str(model), registry) if model is not None else registry.get(registry.default)


def engine_of(
    judge: Judge | Engine,
    grammar_backend: GrammarBackend | None,
    home: Path,
    on_progress: OnProgress,
    airgap: Airgap,
) -> Engine:
    """Return the engine that runs a judge; an engine runs itself.

    Raises:
        UsageError: the grammar backend or `airgap` is unknown, or the engine has chosen its own already.
    """
    check(airgap)
    if grammar_backend is not None and grammar_backend not in get_args(GrammarBackend):
        raise UsageError(
            f"grammar_backend is {grammar_backend!r}.",
            f"Choose one of {', '.join(get_args(GrammarBackend))}.",
        )
    if not isinstance(judge, Judge):
        if grammar_backend is not None:
            raise UsageError(
                f"grammar_backend is {grammar_backend!r}, but the model is an engine already.",
                "Leave it out, or give a judge.",
            )
        if airgap == "required" and process_network() != "namespace":
            raise UsageError(
                "airgap is 'required', but the model is an engine, whose network is its own.",
                "Call `airgap.close_process('required')` first, or give a judge.",
            )
        return judge
    if grammar_backend is not None:
        judge = judge.model_copy(update={"grammar_backend": grammar_backend})
    return VLLMEngine(
        judge,
        partial(open_judge, judge, home, on_progress),
        log_folder=home / "logs",
        grammar_folder=home / "grammars",
        airgap=airgap,
    )


def shut_down(loop: LoopThread, engine: Engine, lock: threading.Lock, timeout: float) -> None:
    """Close an engine on its loop and end the loop; an engine that takes longer than `timeout` is killed."""
    with lock:
        if not loop.is_running:
            return
        closed = loop.submit(engine.close())
        try:
            closed.result(timeout)
        except TimeoutError:
            # Without its processes an engine that is still loading gives up, and the loop gets to close it.
            engine.kill()
            with contextlib.suppress(TimeoutError):
                closed.result(INTERRUPT_TIMEOUT_S)
        loop.stop(timeout=1.0)
