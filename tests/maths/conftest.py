"""The fixtures of the golden values: inputs on which the peers' own functions were executed."""

from dataclasses import dataclass

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
