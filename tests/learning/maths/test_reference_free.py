import math

import pytest
import torch

from posttrain.learning.maths.preference import orpo_loss, simpo_loss

CHOSEN, REJECTED = torch.tensor([-0.5, -2.0]), torch.tensor([-1.5, -1.0])


def test_simpo_by_hand():
    # beta 2, target .5: 2 x 1 - .5 = 1.5 and 2 x -1 - .5 = -2.5.
    loss, metrics = simpo_loss(CHOSEN, REJECTED, beta=2.0, target_margin=0.5, denominator=2)
    expected = (math.log1p(math.exp(-1.5)) + math.log1p(math.exp(2.5))) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert metrics["accuracy"] == 0.5
    assert metrics["margin"].item() == pytest.approx(0.0)
    equal, _ = simpo_loss(CHOSEN, CHOSEN, beta=2.0, target_margin=0.5, denominator=2)
    assert equal.item() == pytest.approx(math.log1p(math.exp(0.5)))


def test_orpo_by_hand():
    # p = .5 has odds 1, p = .2 has odds 1/4: log sigmoid(log 4) = log(4/5).
    loss, metrics = orpo_loss(
        torch.tensor([math.log(0.5)]), torch.tensor([math.log(0.2)]), weight=0.1, denominator=1
    )
    assert loss.item() == pytest.approx(math.log(2) - 0.1 * math.log(0.8), rel=1e-6)
    assert metrics["log_odds_ratio"].item() == pytest.approx(math.log(4), rel=1e-6)
    assert metrics["chosen_nll"].item() == pytest.approx(math.log(2))


def test_metrics_are_means_over_pairs():
    loss, metrics = orpo_loss(CHOSEN, REJECTED, weight=0.0, denominator=2)
    assert loss.item() == metrics["chosen_nll"].item() == 1.25
    twice, _ = orpo_loss(CHOSEN, REJECTED, weight=0.1, denominator=2)
    apart = [orpo_loss(CHOSEN[i], REJECTED[i], weight=0.1, denominator=1) for i in ([0], [1])]
    assert twice.item() == pytest.approx(sum(loss.item() for loss, _ in apart) / 2)
    log_odds = sum(metrics["log_odds_ratio"].item() for _, metrics in apart) / 2
    assert metrics["log_odds_ratio"].item() == pytest.approx(log_odds)
    _, metrics = simpo_loss(CHOSEN, REJECTED, beta=3.0, target_margin=0.0, denominator=2)
    assert metrics["chosen_reward"].item() == 3.0 * -1.25


def test_orpo_at_the_ends_of_probability():
    certain, hopeless = torch.zeros(1, requires_grad=True), torch.full((1,), -60.0)
    loss, _ = orpo_loss(certain, hopeless, weight=1.0, denominator=1)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(certain.grad).all()
    # Odds near 0 are the probability itself: log odds of exp(-60) is -60.
    _, metrics = orpo_loss(hopeless, hopeless - 5, weight=1.0, denominator=1)
    assert metrics["log_odds_ratio"].item() == pytest.approx(5.0)


@pytest.mark.parametrize(
    "loss",
    [
        lambda c, r: simpo_loss(c, r, beta=2.0, target_margin=0.5, denominator=2)[0],
        lambda c, r: orpo_loss(c, r, weight=0.3, denominator=2)[0],
    ],
    ids=["simpo", "orpo"],
)
def test_splits_add_up_and_gradients(loss):
    chosen, rejected = CHOSEN.double().requires_grad_(), REJECTED.double().requires_grad_()
    assert torch.autograd.gradcheck(loss, (chosen, rejected))
    parts = loss(chosen[:1], rejected[:1]) + loss(chosen[1:], rejected[1:])
    torch.testing.assert_close(parts, loss(chosen, rejected))
