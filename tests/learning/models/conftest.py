"""A tokenizer and a model small enough to reason about."""

import pytest

from posttrain.learning.models.build import build_llama
from posttrain.learning.models.tokenizer import train_tokenizer

TEXTS = ["3 + 4 = 7\n#### 7", "the sum of 12 and 30 is 42\n#### 42"] * 20


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=300)


@pytest.fixture
def model(tokenizer):
    return build_llama(tokenizer, hidden=16, layers=2, heads=2, seed=0).eval()
