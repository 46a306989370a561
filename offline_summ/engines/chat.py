"""Chat messages to token ids, with the content of every message encoded as plain text.

The chat template is rendered around placeholders; only the template's own text may produce control tokens.
A chat without any such token in its contents is encoded in one piece, exactly as the template alone would be.
Where a content holds one, `<|im_end|>` in a document, the contents are encoded by a copy of the tokenizer
that knows no added tokens: it is six or so ordinary tokens then and cannot end its message. Knows nothing
of the engine that takes the ids.
"""

import json
import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from offline_summ.engines.base import Message
from offline_summ.errors import JudgeError
from offline_summ.judges import Thinking

_TEMPLATE_HINT = "Give a working one as `chat_template` in the judge's entry: the text itself, not a path."
_MARKUP = re.compile(r"[<\[{|].*[>\]}|]")


@dataclass(frozen=True)
class Segment:
    """A piece of a rendered chat.

    Attributes:
        text: the text.
        plain: whether it is content, in which no control token takes effect.
    """

    text: str
    plain: bool


class ChatEncoder:
    """Encodes chats for one judge.

    Args:
        tokenizer: a fast Hugging Face tokenizer.
        template: chat template that replaces the tokenizer's own; None keeps that.
        arguments: further arguments of the template, such as `enable_thinking`.

    Attributes:
        control_ids: ids of the control tokens.

    Raises:
        JudgeError: there is no chat template, no end-of-text token, or the tokenizer has no fast
            implementation.
    """

    def __init__(self, tokenizer: Any, template: str | None, arguments: Mapping[str, Any]) -> None:
        """Build the tokenizer that knows no added tokens."""
        if not (template or tokenizer.chat_template):
            raise JudgeError(
                "The judge has no chat template.",
                "Use an instruction-tuned judge, or give `chat_template` in its models.toml entry.",
            )
        if not getattr(tokenizer, "is_fast", False):
            raise JudgeError(
                f"The judge's tokenizer {type(tokenizer).__name__!r} has no fast implementation.",
                "Use a judge with a tokenizer.json.",
            )
        if tokenizer.eos_token_id is None:
            raise JudgeError(
                "The judge's tokenizer names no end-of-text token, so that no reply could end.",
                "Name it as `eos_token` in the judge's tokenizer_config.json.",
            )
        self._tokenizer = tokenizer
        self._template = template
        self._arguments = dict(arguments)
        self._within = _variant(tokenizer, added_tokens=True)
        self._plain = _variant(tokenizer, added_tokens=False)
        added = _control_tokens(tokenizer)
        control = sorted(added, key=len, reverse=True)
        self.control_ids: frozenset[int] = frozenset(added.values())
        self._control = re.compile("|".join(map(re.escape, control))) if control else None

    def render(self, messages: Sequence[Message]) -> list[Segment]:
        """Return the chat up to where the judge's reply begins.

        Raises:
            JudgeError: the chat template fails, or drops, repeats or reorders messages.
        """
        marks = [f"PLACEHOLDER{secrets.token_hex(12)}" for _ in messages]
        chat = [{"role": m.role, "content": mark} for m, mark in zip(messages, marks, strict=True)]
        # Templates without a system role raise on one, or drop it: its text then opens the user's message.
        merged = [{"role": "user", "content": "\n\n".join(marks)}]
        attempts = [chat, merged] if messages[0].role == "system" else [chat]
        failure: JudgeError | None = None
        for attempt in attempts:
            try:
                return _segments(self._apply(attempt), messages, marks)
            except JudgeError as error:
                failure = failure or error
        assert failure is not None
        raise failure

    def encode(self, segments: Sequence[Segment]) -> list[int]:
        """Return the token ids of a rendered chat.

        Raises:
            JudgeError: a control token cannot be encoded as plain text.
        """
        own = [self._encode_own(s.text, first=i == 0) for i, s in enumerate(segments) if not s.plain]
        content = (segment.text for segment in segments if segment.plain)
        if self._control is None or not any(map(self._control.search, content)):
            whole = "".join(segment.text for segment in segments)
            ids: list[int] = self._tokenizer.encode(whole, add_special_tokens=False)
            # A normalizer may make a control token of what did not look like one.
            if self._controls(ids) == self._controls([i for each in own for i in each]):
                return ids
        in_turn = iter(own)
        pieces = (self._encode_plain(s.text) if s.plain else next(in_turn) for s in segments)
        return [i for piece in pieces for i in piece]

    def stop_ids(self, end: str) -> list[int]:
        """Return the id of the control token that `end` begins with, if it begins with one."""
        ids = self._within.encode(end, add_special_tokens=False).ids[:1]
        return [i for i in ids if i in self.control_ids]

    def _controls(self, ids: Sequence[int]) -> Counter[int]:
        return Counter(i for i in ids if i in self.control_ids)

    def _encode_own(self, text: str, *, first: bool) -> list[int]:
        if first:
            return list(self._tokenizer.encode(text, add_special_tokens=False))
        return list(self._within.encode(text, add_special_tokens=False).ids)

    def _apply(self, chat: list[dict[str, str]]) -> str:
        from jinja2 import TemplateError

        try:
            rendered = self._tokenizer.apply_chat_template(
                chat,
                chat_template=self._template,
                tokenize=False,
                add_generation_prompt=True,
                **self._arguments,
            )
        # A template is a program: it may divide by zero as well as it may raise on purpose.
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise JudgeError(f"The judge's chat template fails: {error}.", _TEMPLATE_HINT) from error
        return str(rendered)

    def _encode_plain(self, text: str) -> list[int]:
        encoding = self._plain.encode(text, add_special_tokens=False)
        if self.control_ids.isdisjoint(encoding.ids):
            return list(encoding.ids)
        # A vocabulary may hold a control token as an ordinary piece too: cut the text inside each of them.
        spans = zip(encoding.ids, encoding.offsets, strict=True)
        cuts = [start + 1 for i, (start, end) in spans if i in self.control_ids and end - start > 1]
        if not cuts:
            raise JudgeError("The judge's tokenizer cannot encode a control token as plain text.")
        ends = pairwise([0, *cuts, len(text)])
        return [i for start, end in ends for i in self._encode_plain(text[start:end])]


def _segments(rendered: str, messages: Sequence[Message], marks: Sequence[str]) -> list[Segment]:
    segments, rest = [], rendered
    for message, mark in zip(messages, marks, strict=True):
        before, found, rest = rest.partition(mark)
        if not found or mark in rest:
            raise JudgeError("The judge's chat template drops, repeats or reorders messages.", _TEMPLATE_HINT)
        segments += [Segment(before, plain=False), Segment(message.content, plain=True)]
    return [*segments, Segment(rest, plain=False)]


def _control_tokens(tokenizer: Any) -> dict[str, int]:
    """Return the added tokens that mean something to a model: special ones, and those that look like markup.

    The token for unknown characters stands in ordinary text, unless the tokenizer never makes it of any.
    """
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    makes_unknown = model.get("unk_token") is not None or model.get("unk_id") is not None
    meaningful = {tokenizer.eos_token_id, tokenizer.bos_token_id, tokenizer.pad_token_id}
    ordinary = {tokenizer.unk_token_id} - meaningful if makes_unknown else set()
    return {
        str(token): i
        for i, token in tokenizer.added_tokens_decoder.items()
        if i not in ordinary and (token.special or _MARKUP.fullmatch(str(token).strip()))
    }


def _variant(tokenizer: Any, *, added_tokens: bool) -> Any:
    """Return a copy of the tokenizer for pieces of a text: it adds nothing at their beginning."""
    from tokenizers import Tokenizer

    state = json.loads(tokenizer.backend_tokenizer.to_str())
    if not added_tokens:
        state["added_tokens"] = []
    state["post_processor"] = state["truncation"] = state["padding"] = None
    normalizer = state["normalizer"]
    if normalizer is not None:
        kept = [each for each in normalizer.get("normalizers", [normalizer]) if each["type"] != "Prepend"]
        state["normalizer"] = {"type": "Sequence", "normalizers": kept}
    pre_tokenizer = state["pre_tokenizer"] or {}
    for each in pre_tokenizer.get("pretokenizers", [pre_tokenizer]):
        if each.get("type") == "Metaspace":
            each["prepend_scheme"] = "never"
        if "add_prefix_space" in each:
            each["add_prefix_space"] = False
    return Tokenizer.from_str(json.dumps(state))


def with_thoughts(chat: Sequence[Segment], thinking: Thinking, thoughts: str | None) -> list[Segment]:
    """Return the chat with the judge's thoughts opened, and, if there are any, written and closed."""
    *before, last = chat
    opened = last.text if last.text.rstrip().endswith(thinking.start.strip()) else last.text + thinking.start
    segments = [*before, Segment(opened, plain=False)]
    if thoughts is None:
        return segments
    return [*segments, Segment(thoughts, plain=True), Segment(thinking.end, plain=False)]
