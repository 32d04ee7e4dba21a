import pytest
import torch

from posttrain.learning.maths.gae import generalized_advantages, value_loss
from posttrain.learning.maths.reduce import loss_denominator

MASK = torch.tensor([[True, True, True], [True, True, False]])
OLD = torch.tensor([[0.5, 0.4, 0.3], [0.2, 0.1, 0.0]])
NEW = torch.tensor([[0.9, 0.4, 0.2], [0.2, 0.3, 0.0]])


def returns():
    rewards = torch.tensor([[0.0, 0.0, 1.0], [0.0, -0.5, 0.0]])
    return generalized_advantages(rewards, OLD, mask_BT=MASK, gamma=0.99, lam=0.95)[1]


def loss_of(values, clip=0.2, rows=slice(None), denominator=5.0):
    return value_loss(
        values[rows],
        returns()[rows].to(values.dtype),
        old_values_BT=OLD[rows].to(values.dtype),
        mask_BT=MASK[rows],
        clip=clip,
        aggregation="token_mean",
        denominator=denominator,
    )


def test_golden_value_loss():
    assert loss_of(NEW)[0].item() == pytest.approx(0.207870, abs=1e-5)
    # slime has no factor 1/2.
    assert 2 * loss_of(NEW)[0].item() == pytest.approx(0.415739, abs=1e-5)


def test_metrics_by_hand():
    _, metrics = loss_of(NEW)
    # Only .9 moved by more than .2, from .5; at .7 it is farther from its return .918307.
    assert metrics["value_clip_fraction"].item() == pytest.approx(0.2)
    assert metrics["value_mean"].item() == pytest.approx((0.9 + 0.4 + 0.2 + 0.2 + 0.3) / 5)


def test_without_clip_it_is_half_the_squared_error():
    loss, metrics = loss_of(NEW, clip=None)
    assert loss.item() == pytest.approx(((NEW - returns())[MASK] ** 2).mean().item() / 2)
    assert metrics["value_squared_error"].item() == pytest.approx(2 * loss.item())
    assert metrics["value_clip_fraction"] == 0.0


def test_splits_add_up_and_gradients():
    values = NEW.clone().requires_grad_()
    loss_of(values)[0].backward()
    whole = values.grad.clone()
    values.grad = None
    for row in ([0], [1]):
        loss_of(values, rows=row)[0].backward()
    torch.testing.assert_close(values.grad, whole, atol=1e-6, rtol=0)
    # The clipped token has no gradient, nor has padding.
    assert whole[0, 0] == whole[1, 2] == 0.0
    smooth = (OLD.double() + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: loss_of(v)[0], smooth)


def test_denominator_of_the_batch():
    assert loss_denominator(MASK, "token_mean") == 5
    assert loss_of(NEW, denominator=10.0)[0].item() == pytest.approx(0.207870 / 2, abs=1e-5)
