"""A tiny policy and rows for tests of the supervised loop."""

import pytest

from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import Policy
from posttrain.learning.models.tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer(["3 + 4 = 7"] * 9, vocab_size=270)


@pytest.fixture
def fresh(tokenizer):
    """A new policy with the same weights at every call."""

    def build(seed=0):
        return Policy(build_llama(tokenizer, hidden=16, layers=2, heads=2, seed=seed), tokenizer)

    return build
