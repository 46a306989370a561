"""Runs a judge on vLLM in this machine's GPUs or CPU. The only file that imports vLLM.

vLLM's engine runs in child processes; what they and vLLM's own logger say goes to a log file. Knows nothing
of prompts, protocols or scores.
"""

import asyncio
import dataclasses
import itertools
import logging
import multiprocessing
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from offline_summ.airgap import Airgap
from offline_summ.engines.base import SEED, Capacity, Completion, EngineRecord, Message, Reply, Request
from offline_summ.engines.chat import ChatEncoder, Segment, with_thoughts
from offline_summ.engines.cpu import computes_in_16_bits, cpu_arguments, cpu_dtype
from offline_summ.engines.grammar_backends import (
    GrammarCache,
    barred_tokens,
    choose_backend,
    compile_failure,
)
from offline_summ.engines.lifeline import children_prepared
from offline_summ.engines.verdict_words import word_probabilities
from offline_summ.engines.vllm_files import empty_generation_config, end_of_text_ids
from offline_summ.engines.vllm_process import (
    cause_of,
    closed_network,
    import_error,
    installed_versions,
    main_module_hidden,
    new_log,
    output_to,
    prepare_environment,
)
from offline_summ.errors import ExampleError, JudgeError, JudgeStoppedError, OfflineSummError, UsageError
from offline_summ.judges import Judge
from offline_summ.schemas import Network
from offline_summ.weights import PreparedJudge

_SHUTDOWN_TIMEOUT_S = 3.0
_FINISHED = ("stop", "length", "repetition")
_MAX_LOGPROBS = 64
_NEVER = -100.0  # the lowest bias that vLLM takes
# Four times the same 4 to 128 tokens in a row: a sentence that the judge cannot leave, or a word of it.
_LOOP = {"min_pattern_size": 4, "max_pattern_size": 128, "min_count": 4}


class VLLMEngine:
    """An engine on vLLM's asynchronous engine: greedy decoding, prefix caching, Outlines grammars.

    Args:
        judge: the judge.
        prepare: returns the judge's verified weights; called once, when the judge is loaded.
        log_folder: where vLLM's log goes; the newest 20 logs are kept.
        grammar_folder: where compiled grammars are kept; it may be read-only, missing, or None.
        seed: seed of the engine.
        bounds_texts: whether grammars end texts at their limit of characters, which makes them slower. Where
            they do not, the token limit cuts, and the reply goes on from there.
        airgap: whether the network of vLLM's processes is closed; see `airgap.close_process`.
    """

    def __init__(
        self,
        judge: Judge,
        prepare: Callable[[], PreparedJudge],
        *,
        log_folder: Path,
        grammar_folder: Path | None = None,
        seed: int = SEED,
        bounds_texts: bool = False,
        airgap: Airgap = "auto",
    ) -> None:
        """Load nothing yet."""
        self._judge = judge
        self._prepare = prepare
        self._prepared: PreparedJudge | None = None
        self._log_folder = log_folder
        self._log = log_folder
        self._grammars = GrammarCache(grammar_folder) if grammar_folder is not None else None
        self._seed = seed
        self._backend = judge.grammar_backend
        self._dtype: str | None = None
        self._bounded = bounds_texts
        self._airgap: Airgap = airgap
        self._network: Network | None = None
        self._llm: Any = None
        self._encoder: ChatEncoder | None = None
        self._barred: dict[int, float] | None = None
        self._stop_ids: list[int] = []
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
            dtype=self._dtype,
            grammar_backend=self._backend,
            network=self._network,
            versions=installed_versions(),
        )

    @property
    def context_length(self) -> int:
        """Longest request and reply together, in tokens."""
        return self._judge.context_length

    @property
    def bounds_texts(self) -> bool:
        """Whether grammars end texts at their limit of characters."""
        return self._bounded

    @property
    def capacity(self) -> Capacity:
        """The requests that vLLM schedules at once, and the tokens that its KV cache holds."""
        if self._llm is None:
            return Capacity()
        config = self._llm.vllm_config
        blocks = config.cache_config.num_gpu_blocks
        return Capacity(
            requests=config.scheduler_config.max_num_seqs,
            tokens=blocks * config.cache_config.block_size if blocks else None,
        )

    async def start(self) -> None:
        """Import vLLM and load the judge; takes from half a minute to several minutes.

        Raises:
            UsageError: vLLM is not installed, or the judge has an engine argument that vLLM does not know, or
                that needs a network.
            WeightsError: the weights are not on this machine, or not what they should be.
            JudgeError: the judge cannot be loaded; the hint names the log.
        """
        if self._llm is not None:
            return
        self._network = closed_network(self._judge, self._airgap)
        if self._prepared is None:
            self._prepared = self._prepare()
        log = self._log = new_log(self._log_folder)
        self._others = frozenset(child.pid for child in multiprocessing.active_children())
        prepare_environment(log)
        with output_to(log), main_module_hidden(), children_prepared(self._network):
            try:
                with empty_generation_config() as generation:
                    self._llm = self._load(self._prepared.folder, generation)
            except OfflineSummError:
                raise
            except ImportError as error:
                raise import_error(error) from error
            # vLLM raises whatever its own stack raises: ValueError, RuntimeError, OSError, and others.
            except Exception as error:
                logging.getLogger("vllm").exception("loading failed")
                raise JudgeError(
                    f"Judge {self._judge.name!r} cannot be loaded: {cause_of(error)}.",
                    f"See {str(log)!r}.",
                ) from error
            finally:
                if self._llm is None:
                    self.kill()
                    if self._grammars is not None:
                        self._grammars.close()

    def _load(self, folder: Path, generation: Path) -> Any:
        import torch
        from transformers import AutoTokenizer

        judge, on_cpu = self._judge, dict[str, Any]()
        self._dtype = str(judge.engine.get("dtype", judge.dtype))
        if not torch.cuda.is_available():
            if "dtype" not in judge.engine:
                self._dtype = cpu_dtype(judge.dtype, folder, computes_in_16_bits=computes_in_16_bits())
            # Ahead of the import of vLLM, which reads the environment.
            on_cpu = cpu_arguments(folder, judge.context_length, self._dtype, os.environ)
        from vllm import AsyncEngineArgs

        tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=judge.trust_remote_code)
        self._encoder = ChatEncoder(tokenizer, judge.chat_template, judge.chat_template_arguments)
        self._backend = choose_backend(judge.grammar_backend, tokenizer)
        self._barred = dict.fromkeys(barred_tokens(self._backend, tokenizer), _NEVER) or None
        self._stop_ids = end_of_text_ids(folder) if judge.thinking else []
        if self._grammars is not None and self._backend == "outlines":
            self._grammars.open(os.environ)
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
            "dtype": self._dtype,
            "max_model_len": judge.context_length,
            "trust_remote_code": judge.trust_remote_code,
            "seed": self._seed,
            "enable_prefix_caching": True,
            "structured_outputs_config": {"backend": self._backend},
            "generation_config": str(generation),
            "logprobs_mode": "processed_logprobs",
            "max_logprobs": _MAX_LOGPROBS,
            "disable_log_stats": True,
        }
        return self._create({**arguments, **on_cpu, **judge.engine})

    def _create(self, arguments: dict[str, Any]) -> Any:
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))

    async def warm_up(self, replies: Sequence[Reply]) -> None:
        """Compile the grammars of these replies, all at once, by decoding one token under each.

        Raises:
            JudgeError: a grammar cannot be compiled; the message says why.
        """
        llm, encoder = self._loaded()
        ids = encoder.encode(encoder.render((Message("user", "x"),)))

        async def decode(reply: Reply) -> None:
            parameters = self._parameters(max_tokens=1, reply=reply, temperature=0.0)
            try:
                await self._output(llm, ids, parameters, f"while preparing grammar {reply.name!r}")
            except JudgeError as error:
                # No document takes part here, so what vLLM says may be told.
                cause = cause_of(error.__cause__ or error)
                raise JudgeError(
                    f"Grammar {reply.name!r} cannot be compiled by {self._backend!r}: {cause}.",
                    "Choose another grammar backend.",
                ) from error

        done = await asyncio.gather(*map(decode, replies), return_exceptions=True)
        for failure in filter(None, done):
            raise failure

    async def generate(self, request: Request) -> Completion:
        """Decode one reply under its grammar, after the judge's thoughts if it has to think.

        Raises:
            ExampleError: kind `source_too_long`, or `truncated_reply` if what was begun leaves no room.
            JudgeError: vLLM stopped, or could not compile the grammar.
        """
        llm, encoder = self._loaded()
        chat = encoder.render(request.messages)
        thoughts, thought_tokens = request.thoughts, 0
        if self._judge.thinking is not None:
            if thoughts is None:
                room = self._room(request, len(encoder.encode(chat)))
                thoughts, thought_tokens = await self._think(llm, encoder, request, chat, room)
            chat = with_thoughts(chat, self._judge.thinking, thoughts)
        ids = encoder.encode([*chat, Segment(request.begun, plain=True)] if request.begun else chat)
        parameters = self._decoding(request, self._room(request, len(ids)))
        output = await self._output(llm, ids, parameters, f"in step {request.step!r}")
        reply = output.outputs[0]
        cut = reply.finish_reason != "stop"
        # The token limit may fall inside a character.
        text = reply.text.rstrip("\ufffd") if cut else reply.text
        probabilities = None
        if request.verdict_words:
            probabilities = word_probabilities(reply.logprobs, request.verdict_words)
            text = max(probabilities, key=probabilities.__getitem__)
        return Completion(
            text=text,
            finish_reason="stop" if request.verdict_words else reply.finish_reason,
            prompt_tokens=len(ids),
            cached_tokens=output.num_cached_tokens or 0,
            generated_tokens=thought_tokens + len(reply.token_ids),
            thoughts=thoughts,
            thought_tokens=thought_tokens,
            probabilities=probabilities,
        )

    def _decoding(self, request: Request, room: int) -> Any:
        if request.verdict_words:
            # The first token tells the words apart, in four cases each.
            logprobs = min(4 * sum(map(len, request.verdict_words)), _MAX_LOGPROBS)
            return self._parameters(max_tokens=1, reply=request.reply, temperature=0.0, logprobs=logprobs)
        return self._parameters(
            max_tokens=min(room, request.reply.max_tokens),
            reply=request.reply,
            temperature=request.temperature,
            seed=request.seed,
        )

    async def _think(
        self, llm: Any, encoder: ChatEncoder, request: Request, chat: Sequence[Segment], room: int
    ) -> tuple[str, int]:
        """Let the judge think freely, and return the thoughts and their number of tokens."""
        thinking = self._judge.thinking
        assert thinking is not None
        end = thinking.end.strip()
        ids = encoder.encode(with_thoughts(chat, thinking, None))
        parameters = self._parameters(
            max_tokens=min(thinking.max_tokens, max(room - 2 * request.reply.min_tokens, 1)),
            reply=None,
            temperature=request.temperature,
            seed=request.seed,
            stop=[end],
            stop_token_ids=[*self._stop_ids, *encoder.stop_ids(end)],
        )
        output = await self._output(llm, ids, parameters, f"in step {request.step!r}")
        thought = output.outputs[0]
        return thought.text.rstrip("\ufffd").strip(), len(thought.token_ids)

    def _loaded(self) -> tuple[Any, ChatEncoder]:
        if self._llm is None or self._encoder is None:
            raise JudgeError("The judge is not loaded.", "Call `start` first.")
        return self._llm, self._encoder

    def _parameters(self, *, reply: Reply | None, **more: Any) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import (
            RepetitionDetectionParams,
            RequestOutputKind,
            StructuredOutputsParams,
        )

        grammar = None if reply is None else StructuredOutputsParams(regex=self._pattern(reply))
        return SamplingParams(
            output_kind=RequestOutputKind.FINAL_ONLY,
            structured_outputs=grammar,
            logit_bias=self._barred if reply is not None else None,
            repetition_detection=RepetitionDetectionParams(**_LOOP),
            **more,
        )

    async def _output(self, llm: Any, ids: list[int], parameters: Any, where: str) -> Any:
        from vllm import TokensPrompt
        from vllm.exceptions import VLLMError
        from vllm.v1.engine.exceptions import EngineDeadError

        number, start = next(self._request_numbers), self._log.stat().st_size
        outputs = llm.generate(TokensPrompt(prompt_token_ids=ids), parameters, f"request-{number}")
        try:
            *_, output = [output async for output in outputs]
        except EngineDeadError as error:
            raise JudgeStoppedError(f"vLLM stopped {where}.", f"See {str(self._log)!r}.") from error
        except (VLLMError, RuntimeError, ValueError) as error:
            raise JudgeError(f"vLLM failed {where}: {type(error).__name__}.") from error
        reason = output.outputs[0].finish_reason
        if reason not in _FINISHED:
            cause = compile_failure(self._log, start) or f"it ended with {reason!r}"
            raise JudgeError(f"vLLM failed {where}: {cause}.")
        return output

    def _room(self, request: Request, prompt_tokens: int) -> int:
        """Return the tokens that the context leaves for a reply, less what its end takes if it is cut."""
        needed = request.reply.min_tokens
        left = self.context_length - prompt_tokens
        if left >= 2 * needed:
            return left - needed
        if request.begun:
            raise ExampleError(
                "truncated_reply",
                f"The judge's reply fills the {self.context_length} tokens of its context.",
                "Shorten the source, or use a judge with a longer context.",
            )
        raise ExampleError(
            "source_too_long",
            f"The texts take {prompt_tokens} tokens, too many for the {self.context_length} tokens "
            f"of judge {self._judge.name!r} and its reply.",
            "Shorten the source, or use a judge with a longer context.",
        )

    def _pattern(self, reply: Reply) -> str:
        from outlines.types.dsl import to_regex

        if reply.name not in self._patterns:
            self._patterns[reply.name] = to_regex(reply.output_type(bounded=self._bounded))
        return self._patterns[reply.name]

    async def close(self) -> None:
        """Stop vLLM and its processes; a process that does not end within three seconds is killed."""
        llm, self._llm, self._encoder = self._llm, None, None
        if llm is not None:
            children = self._children()
            llm.shutdown(timeout=_SHUTDOWN_TIMEOUT_S)
            for child in children:
                child.join(timeout=_SHUTDOWN_TIMEOUT_S)
        self.kill()
        if self._grammars is not None:
            self._grammars.close()

    def kill(self) -> None:
        """End every process that vLLM started at once; its workers end with it."""
        for child in self._children():
            child.kill()

    def _children(self) -> list[Any]:
        return [child for child in multiprocessing.active_children() if child.pid not in self._others]
