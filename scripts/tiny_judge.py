"""Judges of a few layers with random weights, with real tokenizers and chat templates: for tests and torture.

Each kind has what a family of judges is known to break on. Their vocabulary is learned from the examples
and prompts of this repository. Use: `python scripts/tiny_judge.py KIND FOLDER`.
"""

import argparse
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONTEXT = 4096

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# No system role, trims what it is given, adds the BOS token itself.
INST = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ raise_exception('There is no system role.') }}{% endif %}"
    "{% if m.role == 'user' %}[INST] {{ m.content | trim }} [/INST]{% else %}{{ m.content }}</s>{% endif %}"
    "{% endfor %}"
)
SWITCHABLE = CHATML.replace(
    "assistant\n{% endif %}",
    "assistant\n{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% endif %}",
)
ALWAYS_THINKING = CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")

KINDS = {
    "bytes": "byte-level BPE; other end-of-text tokens in generation_config.json than in the tokenizer",
    "sentencepiece": "SentencePiece-like BPE, byte fallback, BOS from tokenizer and template, no system role",
    "unigram": "Unigram pieces; a normalizer that makes control tokens of full-width letters",
    "thinking": "thinks unless its template is told not to",
    "always-thinking": "thinks always; its template opens the thoughts",
    "no-template": "no chat template",
}


def build(
    kind: str,
    folder: Path,
    *,
    seed: int = 0,
    spread: float = 0.5,
    vocabulary: int = 1500,
    favourite: str | None = None,
) -> Path:
    """Write the judge into a folder.

    Args:
        kind: a key of `KINDS`.
        folder: the folder; created if missing.
        seed: seed of the weights.
        spread: standard deviation of the weights; with more, the judge prefers fewer tokens.
        vocabulary: tokens to learn, single bytes among them.
        favourite: a token that the judge wants to write always.

    Returns:
        The folder.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = build_tokenizer(kind, vocabulary)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=CONTEXT,
        initializer_range=spread if favourite is None else 0.02,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = LlamaForCausalLM(config)
    if favourite is not None:
        # The first number of every state is large, and only the favourite looks at it.
        with torch.no_grad():
            model.model.embed_tokens.weight[:, 0] = 5
            model.lm_head.weight[:, 0] = 0
            model.lm_head.weight[tokenizer.convert_tokens_to_ids(favourite), 0] = 6
    model.to(torch.bfloat16).save_pretrained(folder)
    ends = [tokenizer.eos_token_id]
    if kind == "bytes":
        ends = [tokenizer.convert_tokens_to_ids(token) for token in ("<|eot|>", "<|endoftext|>")]
    file = folder / "generation_config.json"
    file.write_text(json.dumps({"eos_token_id": ends, "temperature": 0.7, "repetition_penalty": 1.3}))
    return folder


def build_tokenizer(kind: str, vocabulary: int = 1500):
    """Return the tokenizer of a kind, with its chat template."""
    from transformers import PreTrainedTokenizerFast

    backend, special, template = _tokenizer(kind, vocabulary)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **special)
    tokenizer.chat_template = template
    return tokenizer


def _tokenizer(kind, vocabulary):
    from tokenizers import (
        AddedToken,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    corpus = [
        path.read_text(encoding="utf-8")
        for pattern in ("examples/**/*.txt", "prompts/**/*.jinja")
        for path in sorted(ROOT.glob(pattern))
    ]
    if kind == "sentencepiece":
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
        tokenizer.train_from_iterator(
            corpus, trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=names, show_progress=False)
        )
        state = json.loads(tokenizer.to_str())
        state["added_tokens"] = state["added_tokens"][:3]  # byte pieces are ordinary ones
        tokenizer = Tokenizer.from_str(json.dumps(state))
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
        )
        return tokenizer, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}, INST
    special = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot|>"]
    if kind == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
        trainer = trainers.UnigramTrainer(
            vocab_size=vocabulary, special_tokens=["<unk>", *names], unk_token="<unk>", show_progress=False
        )
        tokenizer.train_from_iterator(corpus, trainer)
        tokenizer.add_special_tokens([AddedToken(name, normalized=True) for name in names[1:3]])
        return tokenizer, {**special, "unk_token": "<unk>"}, CHATML
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=names,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ("<think>", "</think>", "<tool_call>")])
    template = {
        "bytes": CHATML,
        "thinking": SWITCHABLE,
        "always-thinking": ALWAYS_THINKING,
        "no-template": None,
    }[kind]
    return tokenizer, special, template


def main() -> None:
    kinds = "\n".join(f"  {kind:<16} {what}" for kind, what in KINDS.items())
    parser = argparse.ArgumentParser(
        description=f"Write a tiny judge into a folder. Kinds:\n{kinds}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    print(build(arguments.kind, arguments.folder))


if __name__ == "__main__":
    main()
