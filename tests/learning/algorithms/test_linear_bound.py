"""BGPO's bound: by hand, as a bound, and its gradient while the policy is the one that drew."""

import math

import pytest
import torch

from posttrain.learning.algorithms.batches import PolicyBatch
from posttrain.learning.algorithms.surrogates.linear_bound import LinearBoundSurrogate

# Two answers of two draws each, which hide one token and two.
MASK = torch.tensor([[1, 0], [1, 1], [1, 0], [1, 1]]) > 0
OLD = torch.tensor([[-1.0, 0.0], [-2.0, -1.0], [-1.0, 0.0], [-2.0, -1.0]], dtype=torch.float64)


def losses(moved, advantages):
    """Loss of each row, whose first token is as much likelier as `moved` says."""
    logprobs = OLD.clone()
    logprobs[:, 0] += torch.as_tensor(moved, dtype=torch.float64)
    logprobs = logprobs.requires_grad_()
    ratio = torch.where(MASK, logprobs - OLD, 0.0)
    advantages_BT = torch.tensor(advantages, dtype=torch.float64)[:, None]
    batch = PolicyBatch(mask_BT=MASK, advantages_BT=advantages_BT, sampled_logprobs_BT=OLD)
    return logprobs, LinearBoundSurrogate().sequence_loss(logprobs, ratio, batch)


def test_by_hand_for_either_sign():
    """The mean log-ratio of a row of two tokens is half of what its first one moved."""
    _, found = losses([0.2, 0.2, 0.2, 0.2], [2.0, 2.0, -2.0, -2.0])
    expected = [-2 * 1.2, -2 * 1.1, 2 * math.exp(0.2), 2 * math.exp(0.1)]
    assert found.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("advantage", [1.5, -1.5, 0.0])
def test_the_mean_over_draws_is_never_below_the_loss_of_the_mean(advantage):
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        moved = torch.randn(4, generator=generator, dtype=torch.float64)
        _, found = losses(moved, [advantage] * 4)
        mean = float((moved * torch.tensor([1.0, 0.5, 1.0, 0.5])).mean())
        assert float(found.mean()) >= -advantage * math.exp(mean) - 1e-12


@pytest.mark.parametrize("advantage", [1.5, -1.5])
def test_on_policy_value_and_gradient_are_those_of_the_whole_likelihood(advantage):
    leaf, found = losses([0.0] * 4, [advantage] * 4)
    found.mean().backward()
    whole = OLD.clone().requires_grad_()
    means = (torch.where(MASK, whole - OLD, 0.0).sum(-1) / MASK.sum(-1)).mean()
    loss = -advantage * means.exp()
    loss.backward()
    assert float(found.mean()) == pytest.approx(float(loss))
    assert torch.allclose(leaf.grad, whole.grad)
