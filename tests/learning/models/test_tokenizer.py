import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.learning.models.load import load_tokenizer
from posttrain.learning.models.tokenizer import (
    check_same_tokenizer,
    tokenizer_digest,
    train_tokenizer,
)
from posttrain.stage.errors import UserError

TEXTS = ["3 + 4 = 7\n#### 7", "the sum of 12 and 30 is 42\n#### 42"] * 20


def pieces(tokenizer, text):
    return tokenizer.convert_ids_to_tokens(tokenizer(text, add_special_tokens=False)["input_ids"])


def test_special_tokens_come_first_and_encoding_opens_with_bos(tokenizer):
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == ["<pad>", "<bos>", "<eos>"]
    assert tokenizer("7")["input_ids"][0] == tokenizer.bos_token_id == 1


def test_every_digit_is_a_token_of_its_own(tokenizer):
    # "42" and "#### 42" are frequent, yet no merge may join digits.
    assert pieces(tokenizer, "4242") == ["4", "2", "4", "2"]
    assert all(sum(c.isdigit() for c in token) <= 1 for token in tokenizer.get_vocab())


@given(text=st.text())
def test_any_text_round_trips(text):
    tokenizer = train_once()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text


_TRAINED = []


def train_once():
    if not _TRAINED:
        _TRAINED.append(train_tokenizer(TEXTS, vocab_size=300))
    return _TRAINED[0]


def test_same_texts_give_the_same_digest_and_other_texts_another(tokenizer):
    assert tokenizer_digest(train_tokenizer(TEXTS, vocab_size=300)) == tokenizer_digest(tokenizer)
    other = train_tokenizer(["entirely other words"] * 9, vocab_size=300)
    assert tokenizer_digest(other) != tokenizer_digest(tokenizer)


def test_the_digest_survives_saving_and_ignores_how_it_was_last_called(tokenizer, tmp_path):
    before = tokenizer_digest(tokenizer)
    tokenizer.save_pretrained(tmp_path / "one")
    tokenizer(["3", "3 + 4"], padding=True, truncation=True, max_length=2)
    assert tokenizer_digest(tokenizer) == before
    loaded = load_tokenizer(tmp_path / "one")
    assert tokenizer_digest(loaded) == before
    loaded.save_pretrained(tmp_path / "two")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "two" / file).read_bytes() == (tmp_path / "one" / file).read_bytes()


def test_a_chat_template_does_not_make_another_tokenizer(tokenizer):
    changed = train_tokenizer(TEXTS, vocab_size=300)
    changed.chat_template = "{{ messages[0]['content'] }}"
    assert tokenizer_digest(changed) == tokenizer_digest(tokenizer)
    check_same_tokenizer(changed, tokenizer, where="here")


def test_different_tokenizers_are_refused_with_both_digests(tokenizer):
    other = train_tokenizer(["entirely other words"] * 9, vocab_size=300)
    check_same_tokenizer(tokenizer, tokenizer, where="here")
    with pytest.raises(UserError, match="^evaluate: the tokenizers differ") as caught:
        check_same_tokenizer(tokenizer, other, where="evaluate")
    assert tokenizer_digest(tokenizer)[:12] in str(caught.value)
    assert tokenizer_digest(other)[:12] in str(caught.value)


def test_a_vocabulary_too_small_for_all_bytes_is_refused():
    with pytest.raises(UserError, match="at least 259"):
        train_tokenizer(TEXTS, vocab_size=258)
