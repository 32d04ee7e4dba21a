import math

import pytest
import torch

from posttrain.learning.maths.pairs import bradley_terry_loss, pair_accuracy

CHOSEN, REJECTED = torch.tensor([1.0, 0.2]), torch.tensor([0.5, 0.4])


def test_golden_bradley_terry():
    # -log sigmoid(.5) = .474077, -log sigmoid(-.2) = .798139
    loss, metrics = bradley_terry_loss(CHOSEN, REJECTED, denominator=2)
    assert loss.item() == pytest.approx(0.636108, abs=1e-5)
    assert metrics["accuracy"] == 0.5
    assert metrics["margin"].item() == pytest.approx(0.15)
    assert metrics["chosen_reward"].item() == pytest.approx(0.6)
    assert metrics["rejected_reward"].item() == pytest.approx(0.45)


def test_centering_by_hand():
    # Gaps .5 and -.2: .474077 and .798139. Centring: (1.5^2 + .6^2) x .1 = .261.
    loss, _ = bradley_terry_loss(CHOSEN, REJECTED, denominator=2, centering=0.1)
    assert loss.item() == pytest.approx((0.474077 + 0.798139 + 0.261) / 2, abs=1e-5)


def test_weights_and_soft_labels_by_hand():
    # -log sigmoid(.5) = .474077 and of -.5 .974077; of -.2 .798139.
    weights = torch.tensor([3.0, 1.0])
    loss, metrics = bradley_terry_loss(CHOSEN, REJECTED, denominator=4, weight_B=weights)
    assert loss.item() == pytest.approx((3 * 0.474077 + 0.798139) / 4, abs=1e-5)
    assert metrics["margin"].item() == pytest.approx(0.15)
    sure = torch.tensor([0.75, 1.0])
    loss, _ = bradley_terry_loss(CHOSEN, REJECTED, denominator=2, label_prob_B=sure)
    soft = 0.75 * 0.474077 + 0.25 * 0.974077
    assert loss.item() == pytest.approx((soft + 0.798139) / 2, abs=1e-5)


def test_a_soft_label_is_fitted_where_the_model_claims_its_probability():
    gap = torch.tensor([0.0], requires_grad=True)
    for _ in range(400):
        loss, _ = bradley_terry_loss(
            gap, torch.zeros(1), denominator=1, label_prob_B=torch.tensor([0.8])
        )
        (gradient,) = torch.autograd.grad(loss, gap)
        gap = (gap - 2 * gradient).detach().requires_grad_()
    assert torch.sigmoid(gap).item() == pytest.approx(0.8, abs=1e-4)


def test_untrained_model_has_loss_ln_2_and_accuracy_one_half():
    zero = torch.zeros(3)
    loss, metrics = bradley_terry_loss(zero, zero, denominator=3)
    assert loss.item() == pytest.approx(math.log(2))
    assert metrics["accuracy"] == 0.5
    assert pair_accuracy(torch.tensor([1.0, -1.0, 0.0, 2.0])) == 2.5 / 4


def test_one_pair():
    _, metrics = bradley_terry_loss(CHOSEN[:1], REJECTED[:1], denominator=1)
    assert [value.item() for value in metrics.values()] == [1.0, 0.5, 1.0, 0.5]


def test_no_pairs():
    loss, metrics = bradley_terry_loss(CHOSEN[:0], REJECTED[:0], denominator=2)
    assert loss == 0.0
    assert metrics["accuracy"] == 0.0


def test_only_the_gap_counts_without_centering_and_splits_add_up():
    loss, _ = bradley_terry_loss(CHOSEN, REJECTED, denominator=2)
    shifted, _ = bradley_terry_loss(CHOSEN + 7, REJECTED + 7, denominator=2)
    torch.testing.assert_close(shifted, loss)
    halves = [
        bradley_terry_loss(CHOSEN[i], REJECTED[i], denominator=2, centering=0.3)[0]
        for i in ([0], [1])
    ]
    whole, _ = bradley_terry_loss(CHOSEN, REJECTED, denominator=2, centering=0.3)
    torch.testing.assert_close(sum(halves), whole)


def test_gradients_in_float64_and_far_out():
    chosen, rejected = CHOSEN.double().requires_grad_(), REJECTED.double().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda c, r: bradley_terry_loss(c, r, denominator=2, centering=0.2)[0], (chosen, rejected)
    )
    far = torch.tensor([-1000.0], requires_grad=True)
    loss, _ = bradley_terry_loss(far, torch.zeros(1), denominator=1)
    loss.backward()
    assert loss.item() == pytest.approx(1000.0)
    assert far.grad.item() == pytest.approx(-1.0)
