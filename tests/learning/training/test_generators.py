"""Code between two steps may draw from any generator, and a resumed run draws the same."""

import random

import numpy as np
import pytest
import torch

from posttrain.data.rows import TokenRow
from posttrain.learning.models.load import weights_digest
from posttrain.learning.training.config import TrainingConfig
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.generators import generator_states, restore_generators, seed_torch
from posttrain.learning.training.prepare import prepare_for_training
from posttrain.learning.training.supervised import train
from posttrain.learning.training.supervised_objective import SupervisedObjective
from posttrain.learning.training.token_batches import next_token_loss, token_batches
from posttrain.stage.context import StageContext


def draws():
    """From each library: plain numbers, and normal ones, which generators make in pairs."""
    return [
        random.random(),
        random.gauss(0.0, 1.0),
        float(np.random.rand()),  # noqa: NPY002
        float(np.random.randn()),  # noqa: NPY002
        float(torch.rand(())),
    ]


def test_every_library_goes_on_where_it_was(tmp_path):
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(3)
    draws()
    torch.save(generator_states(), tmp_path / "states.pt")
    expected = [draws() for _ in range(3)]
    random.seed(4)
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(6)
    assert draws() != expected[0]
    restore_generators(torch.load(tmp_path / "states.pt", weights_only=True))
    assert [draws() for _ in range(3)] == expected


def test_torch_is_seeded_as_by_its_own_function():
    torch.manual_seed(7)
    expected = torch.get_rng_state()
    torch.rand(3)
    seed_torch(7)
    assert torch.equal(torch.get_rng_state(), expected)


class Killed(BaseException):
    """Stands for a kill; nothing in the loop may catch it."""


@pytest.mark.parametrize("last", [2, 3, 5])
def test_a_loss_that_draws_by_itself_is_resumed_exactly(fresh, tmp_path, last):
    config = TrainingConfig(
        batch_tokens=60, steps=7, optimization={"warmup_steps": 2}, checkpoint_every=2
    )
    rows = [TokenRow((1, *(3 + i % 9 + k for k in range(4)), 2), start=1) for i in range(30)]

    def fit(scratch, *, stop=0):
        policy, calls = fresh(), []
        context = StageContext.quiet(scratch)

        def noisy(model, batch, denominator):
            calls.append(1)
            if len(calls) == stop:
                raise Killed
            loss, metrics = next_token_loss(model, batch, denominator)
            return loss * (1 + sum(draws())), metrics

        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        objective = SupervisedObjective(token_batches(policy, rows, config=config, seed=0), noisy)
        trainable = prepare_for_training(policy.model, config.learner, seed=0)
        train(
            trainable, objective, config=config, context=context, curve=Curve(context), prefix="x"
        )
        return weights_digest(policy.model)

    whole = fit(tmp_path / "whole")
    with pytest.raises(Killed):
        fit(tmp_path / "cut", stop=last + 1)
    assert fit(tmp_path / "cut") == whole
