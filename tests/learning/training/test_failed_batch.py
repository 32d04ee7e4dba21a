"""A batch that made a number that is not finite is kept, and gives that number again."""

import math
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from posttrain.data.rows import TokenBatch, TokenRow
from posttrain.learning.models.load import weights_digest
from posttrain.learning.training.config import TrainingConfig
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.failed_batch import load_failed_batch, save_failed_batch
from posttrain.learning.training.prepare import prepare_for_training
from posttrain.learning.training.supervised import train
from posttrain.learning.training.supervised_objective import SupervisedObjective
from posttrain.learning.training.token_batches import next_token_loss, token_batches
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError

ROWS = [TokenRow((1, 5 + index, 6, 2), start=1) for index in range(12)]
CONFIG = TrainingConfig(
    steps=6, batch_tokens=12, micro_batch_tokens=8, optimization={"warmup_steps": 1}
)


def poisonous(model, batch, denominator):
    """The usual loss, but the logarithm of 0 where token 9 is met: its loss and gradient."""
    loss, metrics = next_token_loss(model, batch, denominator)
    poison = (batch.input_ids_BT == 9).any()
    return (loss * (math.nan if poison else 1.0)), metrics


def steep(model, batch, denominator):
    """A finite loss whose gradient is infinite where token 9 is met."""
    loss, metrics = next_token_loss(model, batch, denominator)
    if (batch.input_ids_BT == 9).any():
        loss = loss + (loss - loss.detach()).abs().sqrt()
    return loss, metrics


def run(policy, scratch, loss):
    context = StageContext.quiet(scratch)
    batches = token_batches(policy, ROWS, config=CONFIG, seed=0)
    train(
        prepare_for_training(policy.model, CONFIG.learner, seed=0),
        SupervisedObjective(batches, loss),
        config=CONFIG,
        context=context,
        curve=Curve(context),
        prefix="fit",
    )


@pytest.mark.parametrize("loss", [poisonous, steep])
def test_the_run_stops_the_file_is_named_and_gives_the_failure_again(fresh, tmp_path, loss):
    policy = fresh()
    with pytest.raises(UserError, match="so training stopped") as caught:
        run(policy, tmp_path, loss)
    path = Path(re.search(r"the batch is kept in (\S+)", str(caught.value)).group(1))
    kept = load_failed_batch(path)
    assert path.is_relative_to(tmp_path)
    # The weights are still those that the step began with.
    assert kept.facts["weights"] == weights_digest(policy.model)
    assert set(kept.facts) >= {"step", "seed", "weights"}
    parts = [
        TokenBatch(part["input_ids_BT"], part["wanted_BT"], facts["num_units"])
        for part, facts in zip(kept.parts, kept.facts["parts"], strict=True)
    ]
    assert any((part.input_ids_BT == 9).any() for part in parts)
    policy.model.zero_grad()
    for part in parts:
        value, _ = loss(policy.model, part, float(sum(p.num_units for p in parts)))
        value.backward()
    gradient = policy.model.model.embed_tokens.weight.grad
    assert not torch.isfinite(gradient).all()


def test_a_file_that_is_no_kept_batch_is_refused(tmp_path):
    path = tmp_path / "other.safetensors"
    path.write_bytes(b"no")
    with pytest.raises(UserError, match="this is no kept batch"):
        load_failed_batch(path)


@dataclass(frozen=True)
class Outer:
    """A batch with another inside."""

    tokens: TokenBatch
    weight: float


def test_batches_inside_batches_are_kept_under_both_names(tmp_path):
    inner = TokenBatch(torch.tensor([[1, 2]]), torch.tensor([[False, True]]), 1)
    path = save_failed_batch(tmp_path, [Outer(inner, 0.5)], facts={"step": 3})
    kept = load_failed_batch(path)
    assert kept.parts[0]["tokens.input_ids_BT"].tolist() == [[1, 2]]
    assert kept.facts == {"step": 3, "parts": [{"tokens.num_units": 1, "weight": 0.5}]}
