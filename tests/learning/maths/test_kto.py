import math

import pytest
import torch

from posttrain.learning.maths.preference import kto_loss, kto_reference_point


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_reference_point_is_the_mean_or_zero():
    assert kto_reference_point(torch.tensor([1.0, 0.0, 0.5])).item() == 0.5
    assert kto_reference_point(torch.tensor([-1.0, 0.5])).item() == 0.0
    assert kto_reference_point(torch.zeros(0)).item() == 0.0
    assert kto_reference_point(torch.tensor([3.0])).item() == 3.0
    assert not kto_reference_point(torch.ones(2, requires_grad=True)).requires_grad


def test_loss_by_hand():
    # Desirable 2, undesirable 3, point .5, beta .1:
    # 1 - sig(.1 x 1.5) with weight 1 and 1 - sig(-.1 x 2.5) with weight 4/3.
    loss, metrics = kto_loss(
        torch.tensor([2.0, 3.0]),
        torch.tensor([True, False]),
        reference_point=0.5,
        beta=0.1,
        denominator=2,
        undesirable_weight=4 / 3,
    )
    expected = ((1 - sigmoid(0.15)) + 4 / 3 * (1 - sigmoid(-0.25))) / 2
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    assert metrics["desirable_reward"].item() == pytest.approx(0.2)
    assert metrics["undesirable_reward"].item() == pytest.approx(0.3)


def test_at_the_reference_point_every_completion_costs_half():
    loss, metrics = kto_loss(
        torch.full((3,), 0.7),
        torch.ones(3, dtype=torch.bool),
        reference_point=torch.tensor(0.7),
        beta=5.0,
        denominator=3,
    )
    assert loss.item() == pytest.approx(0.5)
    assert metrics["undesirable_reward"] == 0.0


def test_both_kinds_have_weight_one_unless_told():
    options = {"reference_point": 0.0, "beta": 1.0, "denominator": 2}
    loss, _ = kto_loss(torch.tensor([0.0, 0.0]), torch.tensor([True, False]), **options)
    assert loss.item() == pytest.approx(0.5)


def test_directions_splits_and_gradients():
    log_ratio = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True)
    desirable = torch.tensor([True, False])

    def loss(log_ratio, desirable=desirable):
        return kto_loss(log_ratio, desirable, reference_point=0.1, beta=0.5, denominator=2)[0]

    assert torch.autograd.gradcheck(loss, log_ratio)
    (gradient,) = torch.autograd.grad(loss(log_ratio), log_ratio)
    assert gradient[0] < 0 < gradient[1]
    parts = loss(log_ratio[:1], desirable[:1]) + loss(log_ratio[1:], desirable[1:])
    torch.testing.assert_close(parts, loss(log_ratio))
