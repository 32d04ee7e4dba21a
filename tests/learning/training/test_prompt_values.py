"""Values of prompts by a head on a frozen policy: of what it can read, and never of itself."""

import pytest

from posttrain.data.rows import TokenRow
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import Policy
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.training.prompt_values import prompt_values
from tasks.sft.config import SftConfig


@pytest.fixture(scope="module")
def policy():
    tokenizer = train_tokenizer(["some text, and some more"], vocab_size=270)
    model = build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0)
    return Policy(model, tokenizer)


def rows_of(last):
    """Two rows of each of 40 prompts of three tokens, the last of which is one of two."""
    return [
        TokenRow((5 + place % 7, 20 + place, last[place % 2], 40 + answer), 3)
        for place in range(40)
        for answer in range(2)
    ]


def test_a_head_reads_what_the_hidden_state_says(policy):
    """Prompts that end in one token score 1, in another 0, and each half is told of the other."""
    rows = rows_of((60, 61))
    # Alternating with the halves, so that the two kinds stand in each.
    scores = [float((place // 4) % 2) for place in range(80)]
    rows = [
        TokenRow((*row.ids[:2], 60 + int(score), row.ids[3]), 3)
        for row, score in zip(rows, scores, strict=True)
    ]
    found = prompt_values(policy, rows, scores, SftConfig())
    assert found.explained > 0.8
    assert all(abs(v - s) < 0.4 for v, s in zip(found.values, scores, strict=True))
    # Rows of one prompt share its value.
    assert found.values[::2] == found.values[1::2]


def test_a_prompts_own_scores_do_not_reach_its_value(policy):
    rows = rows_of((60, 60))
    scores = [float(place % 2) for place in range(80)]
    before = prompt_values(policy, rows, scores, SftConfig()).values
    changed = [1.0, 1.0, *scores[2:]]
    after = prompt_values(policy, rows, changed, SftConfig()).values
    assert after[:2] == before[:2]
    assert after[2:4] != before[2:4]
