"""Token ids that are kept: the same as they would be found, and never another table's."""

import os

import pytest

from posttrain.data import token_cache
from posttrain.data.templates import encode_completions
from posttrain.learning.models.tokenizer import train_tokenizer

TEXTS = [f"{left} + {right} = {left + right}" for left in range(20) for right in range(5)]


@pytest.fixture
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=300)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The folder, and every small table is worth keeping."""
    monkeypatch.setenv(token_cache.TOKENS_VARIABLE, str(tmp_path / "tokens"))
    monkeypatch.setattr(token_cache, "WORTH_KEEPING", 100)
    return tmp_path / "tokens"


def counted(tokenizer, monkeypatch):
    """How many texts the tokenizer was asked for, call by call."""
    asked = []
    call = type(tokenizer).__call__

    def watched(self, texts, **options):
        asked.append(len(texts))
        return call(self, texts, **options)

    monkeypatch.setattr(type(tokenizer), "__call__", watched)
    return asked


def test_a_table_is_tokenized_once(tokenizer, kept, monkeypatch):
    asked = counted(tokenizer, monkeypatch)
    first = encode_completions(tokenizer, TEXTS)
    assert encode_completions(tokenizer, TEXTS) == first
    assert asked.count(len(TEXTS)) == 1
    assert len(list(kept.iterdir())) == 1


def test_other_texts_options_and_tokenizers_are_other_tables(tokenizer, kept):
    encode_completions(tokenizer, TEXTS)
    encode_completions(tokenizer, [*TEXTS[1:], TEXTS[0]])
    # The same characters cut elsewhere.
    encode_completions(tokenizer, [TEXTS[0] + TEXTS[1][0], TEXTS[1][1:], *TEXTS[2:]])
    grown = train_tokenizer([*TEXTS, "zzzz zzzz"], vocab_size=310)
    encode_completions(grown, TEXTS)
    token_cache.kept_token_ids(tokenizer, TEXTS, {"add_special_tokens": True}, lambda: [[1]])
    assert len(list(kept.iterdir())) == 5


def test_a_damaged_table_is_tokenized_again(tokenizer, kept, monkeypatch):
    first = encode_completions(tokenizer, TEXTS)
    (file,) = kept.iterdir()
    whole = file.read_bytes()
    asked = counted(tokenizer, monkeypatch)
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[: len(whole) // 2], b""):
        file.write_bytes(damaged)
        assert encode_completions(tokenizer, TEXTS) == first
        assert file.read_bytes() == whole
    assert asked.count(len(TEXTS)) == 3


def test_a_folder_that_cannot_be_written_stops_nothing(tokenizer, kept):
    kept.write_text("a file in its place")
    assert len(encode_completions(tokenizer, TEXTS)) == len(TEXTS)


def test_what_was_not_read_for_longest_goes_first(kept):
    kept.mkdir()
    for age, name in enumerate("abc"):
        file = kept / f"{name}.safetensors"
        file.write_bytes(b"x" * 10)
        os.utime(file, (1000 - age, 1000 - age))
    token_cache._keep_within(kept, 25)
    assert sorted(file.stem for file in kept.iterdir()) == ["a", "b"]


def test_small_tables_are_not_kept(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv(token_cache.TOKENS_VARIABLE, str(tmp_path / "tokens"))
    encode_completions(tokenizer, TEXTS)
    assert not (tmp_path / "tokens").exists()
