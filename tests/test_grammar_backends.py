"""The libraries that hold a judge to a grammar: they must agree, and their cache must never be in the way."""

import contextlib
import os
import random
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
from outlines.types.dsl import to_regex
from tiny_judge import KINDS, build_tokenizer

from offline_summ.engines import grammar_backends
from offline_summ.engines.grammar_backends import GrammarCache, choose_backend, compile_failure
from offline_summ.errors import JudgeError
from offline_summ.grammar import coverage_grammar, judgement_grammar, piece, verdict_grammar

GRAMMARS = (
    judgement_grammar(axes="both", max_claims=2, max_questions=2),
    coverage_grammar(2),
    verdict_grammar(reason_first=True),
    *judgement_grammar(axes="alignment", max_claims=2, max_questions=1).pieces(),
)


def bits(mask, size):
    return {i for i in range(size) if mask[i // 32] >> (i % 32) & 1}


def outlines_matcher(tokenizer, pattern, size):
    import outlines_core
    from vllm.v1.structured_output.utils import get_outlines_vocabulary

    guide = outlines_core.Guide(outlines_core.Index(pattern, get_outlines_vocabulary(tokenizer).inner))
    return lambda: set(guide.get_tokens()), guide.advance


def guidance_matcher(tokenizer, pattern, size):
    import llguidance
    import llguidance.hf
    import llguidance.torch

    matcher = llguidance.LLMatcher(
        llguidance.hf.from_tokenizer(tokenizer, size), llguidance.grammar_from("regex", pattern)
    )
    mask = llguidance.torch.allocate_token_bitmask(1, size)

    def allowed():
        llguidance.torch.fill_next_token_bitmask(matcher, mask, 0)
        return bits(mask[0].tolist(), size)

    return allowed, lambda token: matcher.consume_tokens([token])


def xgrammar_matcher(tokenizer, pattern, size):
    import torch
    import xgrammar

    compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=size))
    matcher = xgrammar.GrammarMatcher(compiler.compile_regex(pattern))
    mask = torch.full((1, (size + 31) // 32), -1, dtype=torch.int32)

    def allowed():
        matcher.fill_next_token_bitmask(mask, 0)
        return bits(mask[0].tolist(), size)

    return allowed, matcher.accept_token


@pytest.mark.judge
@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: grammar.name)
@pytest.mark.parametrize("kind", ["bytes", "sentencepiece"])
def test_the_backends_allow_the_same_tokens_at_every_step(kind, grammar):
    tokenizer = build_tokenizer(kind, 600)
    size, chance = len(tokenizer), random.Random(3)
    added = set(tokenizer.get_added_vocab().values()) - {tokenizer.eos_token_id}
    # vLLM tells outlines wrong bytes for a token that holds a part of a character and anything else.
    torn = {i for i in range(size) if "\ufffd" in tokenizer.decode([i]) != "\ufffd"}
    # xgrammar lets the byte 0xED begin half of a surrogate pair, which is no character.
    avoided = torn | {i for i in range(size) if tokenizer.convert_ids_to_tokens(i) in ("í", "<0xED>")}
    pattern = to_regex(grammar.output_type())
    matchers = [
        build(tokenizer, pattern, size) for build in (outlines_matcher, guidance_matcher, xgrammar_matcher)
    ]
    for _ in range(60):
        outlines, guidance, xgrammar = (allowed() - added for allowed, _ in matchers)
        assert outlines - torn == xgrammar - torn
        # Where the grammar forces a string, guidance takes the tokens that the tokenizer would take.
        assert guidance == xgrammar or (len(guidance) == 1 and guidance < xgrammar)
        if tokenizer.eos_token_id in guidance:
            break
        # Short tokens, so that the walk gets past the texts.
        token = min(chance.sample(sorted(guidance - avoided), min(4, len(guidance - avoided))))
        for _, advance in matchers:
            advance(token)


def test_guidance_is_chosen_where_it_can_read_the_tokenizer():
    chosen = {kind: choose_backend(None, build_tokenizer(kind, 600)) for kind in KINDS}
    assert chosen.pop("unigram") == "outlines"
    assert set(chosen.values()) == {"guidance"}


def test_a_backend_that_was_asked_for_is_taken_or_refused():
    assert choose_backend("xgrammar", build_tokenizer("bytes", 600)) == "xgrammar"
    assert choose_backend("outlines", build_tokenizer("unigram", 600)) == "outlines"
    for backend in ("guidance", "xgrammar"):
        with pytest.raises(JudgeError, match=f"{backend!r} cannot read .* 'Metaspace'"):
            choose_backend(backend, build_tokenizer("unigram", 600))


@pytest.mark.judge
def test_the_backends_that_are_refused_would_fail():
    tokenizer = build_tokenizer("unigram", 600)
    with pytest.raises(ValueError, match="decoder"):
        guidance_matcher(tokenizer, "ab", len(tokenizer))
    allowed, _ = xgrammar_matcher(tokenizer, "[^ ]the", len(tokenizer))
    assert tokenizer.convert_tokens_to_ids("▁the") in allowed()  # which is " the"


def opened(folder):
    cache, environ = GrammarCache(folder), {}
    cache.open(environ)
    return cache, environ


def filled(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(folder / "outlines_cache.db")) as database:
        database.execute("CREATE TABLE cache (key TEXT PRIMARY KEY, type_tag TEXT, value BLOB)")
        database.execute("INSERT INTO cache VALUES ('a', 'S', 'b')")
        database.commit()


def rows(folder):
    with contextlib.closing(sqlite3.connect(Path(folder) / "outlines_cache.db")) as database:
        return database.execute("SELECT key FROM cache").fetchall()


class TestCache:
    def test_a_missing_folder_is_made_for_the_user_alone(self, tmp_path):
        _, environ = opened(tmp_path / "a" / "grammars")
        assert environ == {
            "VLLM_V1_USE_OUTLINES_CACHE": "1",
            "OUTLINES_CACHE_DIR": str(tmp_path / "a" / "grammars"),
        }
        assert (tmp_path / "a" / "grammars").stat().st_mode & 0o777 == 0o700

    def test_what_is_there_is_kept(self, tmp_path):
        filled(tmp_path)
        opened(tmp_path)
        assert rows(tmp_path) == [("a",)]

    def test_a_broken_file_is_replaced(self, tmp_path):
        (tmp_path / "outlines_cache.db").write_bytes(b"not a database" * 1000)
        _, environ = opened(tmp_path)
        assert environ["OUTLINES_CACHE_DIR"] == str(tmp_path)
        filled(tmp_path)
        assert rows(tmp_path) == [("a",)]

    def test_a_file_that_another_process_holds_is_left_alone(self, tmp_path, monkeypatch):
        filled(tmp_path)
        connect = sqlite3.connect
        monkeypatch.setattr(sqlite3, "connect", lambda *args: connect(*args, timeout=0.1))
        with contextlib.closing(connect(tmp_path / "outlines_cache.db")) as other:
            other.execute("BEGIN EXCLUSIVE")
            cache, environ = opened(tmp_path)
            assert environ["OUTLINES_CACHE_DIR"] != str(tmp_path)
            cache.close()
            other.rollback()
        assert rows(tmp_path) == [("a",)]

    def test_a_file_that_has_grown_too_large_is_replaced(self, tmp_path, monkeypatch):
        filled(tmp_path)
        monkeypatch.setattr(grammar_backends, "_MOST_BYTES", 10)
        opened(tmp_path)
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            rows(tmp_path)

    def test_where_a_folder_cannot_be_made_there_is_no_cache(self, tmp_path):
        (tmp_path / "file").write_text("")
        _, environ = opened(tmp_path / "file" / "grammars")
        assert environ == {"VLLM_V1_USE_OUTLINES_CACHE": "0"}

    def test_a_folder_that_can_only_be_read_is_used_through_a_copy(self):
        place = Path(tempfile.mkdtemp())
        try:
            filled(place / "grammars")
            (place / "grammars" / "outlines_cache.db").chmod(0o444)
            (place / "grammars").chmod(0o555)
            place.chmod(0o755)
            with as_somebody_else():
                cache, environ = opened(place / "grammars")
                copy = Path(environ["OUTLINES_CACHE_DIR"])
                assert copy != place / "grammars"
                assert rows(copy) == [("a",)]
                cache.close()
                assert not copy.exists()
            assert rows(place / "grammars") == [("a",)]
        finally:
            (place / "grammars").chmod(0o755)
            shutil.rmtree(place)

    def test_a_broken_file_that_can_only_be_read_is_no_cache(self, tmp_path, monkeypatch):
        (tmp_path / "outlines_cache.db").write_bytes(b"not a database" * 1000)
        monkeypatch.setattr(GrammarCache, "_writable", lambda self: None)
        cache, environ = opened(tmp_path)
        assert environ == {"VLLM_V1_USE_OUTLINES_CACHE": "0"}
        cache.close()


@contextlib.contextmanager
def as_somebody_else():
    """Permissions mean nothing to root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_the_log_tells_why_a_grammar_was_not_compiled(tmp_path):
    log = tmp_path / "log"
    log.write_text("ValueError: earlier\n")
    start = log.stat().st_size
    assert compile_failure(log, start) is None
    with log.open("a") as stream:
        stream.write(
            "2026 ERROR vllm: Failed to compile grammar for request request-1\n"
            "Traceback (most recent call last):\n"
            "  File x, line 1\n"
            "ValueError: Regex compilation timed out after 5s. Too complex. Pattern: [a-z]\n"
        )
    assert compile_failure(log, start) == "Regex compilation timed out after 5s. Too complex"


def test_equal_pieces_have_equal_names():
    one, other = coverage_grammar(2).form, coverage_grammar(3).form
    assert piece(one).name == piece(tuple(one)).name != piece(other).name
