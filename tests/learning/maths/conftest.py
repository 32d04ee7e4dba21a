"""Inputs of the golden values, and what it takes to call the methods of TRL's trainers."""

from collections import defaultdict
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor


@dataclass(frozen=True)
class Rollouts:
    """Fixture F: two sequences of three and two tokens, advantage +1 and -1."""

    new: Tensor
    old: Tensor
    ref: Tensor
    rollout: Tensor
    mask: Tensor
    advantages: Tensor


@pytest.fixture
def rollouts():
    return Rollouts(
        new=torch.tensor([[-0.9, -2.3, -0.4], [-1.0, -0.9, 0.0]]),
        old=torch.tensor([[-1.0, -2.0, -0.5], [-0.7, -1.2, 0.0]]),
        ref=torch.tensor([[-1.1, -1.9, -0.6], [-0.8, -1.0, 0.0]]),
        rollout=torch.tensor([[-1.05, -1.8, -0.5], [-0.6, -1.3, 0.0]]),
        mask=torch.tensor([[True, True, True], [True, True, False]]),
        advantages=torch.tensor([[1.0], [-1.0]]),
    )


@pytest.fixture
def grouped():
    """Fixture G: group a, a half of successes, and group b, graded rewards."""
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.2, 0.9, 0.4, 0.1])
    return rewards, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])


class LoneProcess:
    """What TRL asks of accelerate, in a world of one process."""

    num_processes = 1
    device = torch.device("cpu")

    def gather(self, tensor):
        return tensor

    gather_for_metrics = gather

    def reduce(self, tensor, reduction):
        return tensor


@pytest.fixture
def stand_in():
    """Makes the `self` of a TRL trainer: its surroundings, and the settings that a method reads."""

    def make(**settings):
        return SimpleNamespace(
            accelerator=LoneProcess(),
            model=SimpleNamespace(training=True),
            ref_model=None,
            _metrics=defaultdict(lambda: defaultdict(list)),
            _total_train_tokens=0,
            _tp_size=1,
            aux_loss_enabled=False,
            **settings,
        )

    return make


@pytest.fixture
def batch():
    """Random rollouts that parity is tested on: six sequences of up to seven tokens."""
    generator = torch.Generator().manual_seed(11)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator)

    old = -0.1 - 2 * uniform(6, 7)
    lengths = torch.tensor([[7], [1], [4], [6], [2], [5]])
    return SimpleNamespace(
        old=old,
        new=old + 0.8 * (uniform(6, 7) - 0.5),
        reference=old + 0.8 * (uniform(6, 7) - 0.5),
        advantages=2 * uniform(6) - 1,
        mask=torch.arange(7) < lengths,
    )


@pytest.fixture
def assert_parity(batch):
    """Checks that two functions from log-probabilities to a loss agree in value and gradient."""

    def check(ours, theirs):
        results = []
        for loss_of in (ours, theirs):
            logprobs = batch.new.clone().requires_grad_()
            loss = loss_of(logprobs)
            loss.backward()
            results.append((loss.detach(), logprobs.grad))
        torch.testing.assert_close(results[0][0], results[1][0], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(results[0][1], results[1][1], atol=1e-6, rtol=1e-5)

    return check
