"""Chat messages to token ids, with the content of every message encoded as plain text.

The chat template is rendered around placeholders; only the template's own text may produce control tokens.
Content is encoded by a copy of the tokenizer that knows no added tokens, so `<|im_end|>` in a document
is six or so ordinary tokens and cannot end its message. Knows nothing of the engine that takes the ids.
"""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from offline_summ.engines.base import Message
from offline_summ.errors import JudgeError


class ChatEncoder:
    """Encodes chats for one judge.

    Args:
        tokenizer: a fast Hugging Face tokenizer.
        template: chat template that replaces the tokenizer's own; None keeps that.
        arguments: further arguments of the template, such as `enable_thinking`.

    Raises:
        JudgeError: there is no chat template, or the tokenizer has no fast implementation.
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
        self._tokenizer = tokenizer
        self._template = template
        self._arguments = dict(arguments)
        self._plain = _without_added_tokens(tokenizer)
        control = sorted(map(str, tokenizer.get_added_vocab()), key=len, reverse=True)
        self._control_ids = frozenset(tokenizer.get_added_vocab().values())
        self._control = re.compile("|".join(map(re.escape, control))) if control else None

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Return the token ids of the chat up to where the judge's reply begins.

        Raises:
            JudgeError: the chat template fails, or drops or changes a message.
        """
        marks = [f"PLACEHOLDER{secrets.token_hex(12)}" for _ in messages]
        rendered = self._render(messages, marks)
        ids: list[int] = []
        rest = rendered
        for message, mark in zip(messages, marks, strict=True):
            before, found, rest = rest.partition(mark)
            if not found or mark in rest:
                raise JudgeError("The judge's chat template drops, repeats or reorders messages.")
            ids += self._tokenizer.encode(before, add_special_tokens=False)
            ids += self._encode_plain(message.content)
        return ids + list(self._tokenizer.encode(rest, add_special_tokens=False))

    def _render(self, messages: Sequence[Message], marks: Sequence[str]) -> str:
        from jinja2 import TemplateError

        chat = [{"role": m.role, "content": mark} for m, mark in zip(messages, marks, strict=True)]
        try:
            return self._apply(chat)
        except TemplateError as error:
            if chat[0]["role"] != "system":
                raise JudgeError(f"The judge's chat template fails: {error}.") from error
        # Templates without a system role raise on one; its text then opens the first user message.
        merged = "\n\n".join(message["content"] for message in chat)
        try:
            return self._apply([{"role": "user", "content": merged}])
        except TemplateError as error:
            raise JudgeError(f"The judge's chat template fails: {error}.") from error

    def _apply(self, chat: list[dict[str, str]]) -> str:
        rendered = self._tokenizer.apply_chat_template(
            chat,
            chat_template=self._template,
            tokenize=False,
            add_generation_prompt=True,
            **self._arguments,
        )
        return str(rendered)

    def _encode_plain(self, text: str) -> list[int]:
        ids: list[int] = list(self._plain.encode(text, add_special_tokens=False).ids)
        if self._control is None or self._control_ids.isdisjoint(ids):
            return ids
        # A vocabulary may hold a control token as an ordinary piece too: cut the text inside each of them.
        pieces, start = [], 0
        for match in self._control.finditer(text):
            cut = match.start() + 1
            pieces.append(text[start:cut])
            start = cut
        pieces.append(text[start:])
        ids = [i for piece in pieces for i in self._plain.encode(piece, add_special_tokens=False).ids]
        if not self._control_ids.isdisjoint(ids):
            raise JudgeError("The judge's tokenizer cannot encode a control token as plain text.")
        return ids


def _without_added_tokens(tokenizer: Any) -> Any:
    from tokenizers import Tokenizer

    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["added_tokens"] = []
    state["post_processor"] = None
    state["truncation"] = state["padding"] = None
    return Tokenizer.from_str(json.dumps(state))
