"""What can be known about a GPU without one: losses are made where their model and batch are.

Where the default device is `meta`, a tensor that is made without saying where has no numbers, and
meets none that has. What only a CPU is given, the fast forward pass, takes no part.
"""

import pytest
import torch

from posttrain.data.rows import TokenTable, encode_rows
from posttrain.learning.models import logprobs
from posttrain.learning.models.load import save_policy
from posttrain.learning.models.reward_head import start_reward_model


@pytest.mark.parametrize("kind", ["likelihood", "head"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_reward_and_its_gradients_are_made_where_the_model_is(
    kind, packed, model, tokenizer, monkeypatch, tmp_path
):
    monkeypatch.setattr(logprobs, "is_fast_llama", lambda _model: False)
    save_policy(model, tokenizer, tmp_path)
    rows = encode_rows(tokenizer, ["3 + 4 =", "the sum of 12 and 30"], ["7", "12 + 30 = 42"])
    batch = TokenTable(rows, pad=tokenizer.pad_token_id, packed=packed).batch([0, 1])

    def learned(place):
        started = start_reward_model(tmp_path, parameterization=kind)
        if kind == "head":
            # It starts at zero, which would hide what is before it.
            torch.nn.init.ones_(started.model.score.weight)
        with torch.device(place):
            rewards_B = started.rewards(batch)
            (rewards_B * rewards_B).sum().backward()
        return [rewards_B, *(p.grad for p in started.model.parameters() if p.grad is not None)]

    found, expected = learned("meta"), learned("cpu")
    assert len(found) == len(expected) > 10
    assert all(map(torch.equal, found, expected))
