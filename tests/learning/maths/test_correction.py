"""Golden values of the corrections on fixture F: w = exp(old - rollout)."""

import pytest
import torch

from posttrain.learning.maths.correction import (
    effective_sample_size,
    importance_weights,
    log_linear_proximal,
    off_policy_keep,
    off_policy_metrics,
    within_band,
)
from posttrain.learning.maths.policy_loss import policy_loss
from posttrain.learning.maths.ratios import log_ratio
from posttrain.learning.maths.surrogates import clipped


def sampler_ratio(rollouts, level="token"):
    return log_ratio(rollouts.old, rollouts.rollout, mask_BT=rollouts.mask, level=level)


@pytest.mark.parametrize(
    ("bound", "low", "high", "expected"),
    [
        ("none", 0.0, 0.0, [1.051271, 0.818731, 1, 0.904837, 1.105171]),
        ("truncate", 0.0, 1.1, [1.051271, 0.818731, 1, 0.904837, 1.1]),  # verl
        ("clamp", 0.9, 1.1, [1.051271, 0.9, 1, 0.904837, 1.1]),  # OpenRLHF
        ("mask", 0.9, 1.1, [1.051271, 0, 1, 0.904837, 0]),  # IcePop
    ],
)
def test_golden_token_weights(rollouts, bound, low, high, expected):
    weights = importance_weights(sampler_ratio(rollouts), bound=bound, low=low, high=high)
    assert weights[rollouts.mask].tolist() == pytest.approx(expected, abs=1e-5)


def test_golden_sequence_weights(rollouts):
    ratio = sampler_ratio(rollouts, "sequence_sum")
    weights = importance_weights(ratio, bound="truncate", high=1.1)
    assert weights[:, 0].tolist() == pytest.approx([0.860708, 1.0], abs=1e-5)


def test_golden_icepop_diagnostics(rollouts):
    weights = importance_weights(sampler_ratio(rollouts), bound="mask", low=0.9, high=1.1)
    size = effective_sample_size(weights, rollouts.mask)
    assert size.item() == pytest.approx(0.597734, abs=1e-5)
    outside = ~within_band(sampler_ratio(rollouts), low=0.9, high=1.1)
    assert outside[rollouts.mask].float().mean().item() == pytest.approx(0.4)


def corrected_loss(rollouts, weights):
    ratio = log_ratio(rollouts.new, rollouts.old, mask_BT=rollouts.mask, level="token")
    surrogate = clipped(ratio, rollouts.advantages, low=0.2, high=0.28)
    return policy_loss(
        surrogate,
        rollouts.mask,
        aggregation="token_mean",
        denominator=5,
        weights_BT=weights,
    )[0].item()


@pytest.mark.parametrize(("bound", "expected"), [("clamp", -0.145005), ("mask", -0.308627)])
def test_golden_ppo_with_token_correction(rollouts, bound, expected):
    weights = importance_weights(sampler_ratio(rollouts), bound=bound, low=0.9, high=1.1)
    assert corrected_loss(rollouts, weights) == pytest.approx(expected, abs=1e-5)


def test_golden_ppo_with_sequence_mask(rollouts):
    # Geometric means exp(-.05) = .951 and 1 lie in the band; the token weights stay unbounded.
    keep = within_band(sampler_ratio(rollouts, "sequence_mean"), low=0.9, high=1.1)
    weights = importance_weights(sampler_ratio(rollouts), bound="none") * keep
    assert corrected_loss(rollouts, weights) == pytest.approx(-0.131568, abs=1e-5)


def test_both_ends_belong_to_the_band():
    one = torch.zeros(1, 1)
    assert within_band(one, low=1.0, high=1.0).all()
    assert not within_band(one, low=1.01, high=2.0).any()


def test_corrections_carry_no_gradient(rollouts):
    old = rollouts.old.clone().requires_grad_()
    ratio = log_ratio(old, rollouts.rollout, mask_BT=rollouts.mask, level="token")
    assert not importance_weights(ratio, bound="none").requires_grad
    assert not log_linear_proximal(old, old, position=0.5).requires_grad


def test_sequence_mask_drops_whole_sequences(rollouts):
    keep = within_band(sampler_ratio(rollouts, "sequence_mean"), low=0.96, high=1.1)
    assert keep.tolist() == [[False] * 3, [True] * 3]


def test_golden_decoupled_ppo_with_the_old_policy_as_proximal(rollouts):
    proximal = log_linear_proximal(rollouts.rollout, rollouts.old, position=1.0)
    weights = importance_weights(
        log_ratio(proximal, rollouts.rollout, mask_BT=rollouts.mask, level="token"), bound="none"
    )
    assert corrected_loss(rollouts, weights) == pytest.approx(-0.131568, abs=1e-5)


def test_log_linear_proximal_by_hand():
    behaviour, current = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-3.0, -1.0]])
    # Version 5 sampled, 8 is current, 7 is proximal: two thirds of the way.
    proximal = log_linear_proximal(behaviour, current.requires_grad_(), position=(7 - 5) / (8 - 5))
    assert proximal.tolist() == [pytest.approx([-1 - 4 / 3, -2 + 2 / 3])]
    assert not proximal.requires_grad
    assert torch.equal(log_linear_proximal(behaviour, current, position=0.0), behaviour)


def test_golden_diagnostics(rollouts):
    metrics = off_policy_metrics(rollouts.old, rollouts.rollout, rollouts.mask)
    expected = {
        "sampler_kl": 0.03,
        "sampler_kl_k3": 0.006002,
        "trainer_perplexity": 2.898490,
        "sampler_perplexity": 2.820182,
        "chi2_token": -0.036875,
        "chi2_sequence": -0.129591,
        "sampler_gap": (0.05 + 0.2 + 0 + 0.1 + 0.1) / 5,
    }
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(
        expected, abs=1e-5
    )


def test_the_exact_engine_needs_no_correction(rollouts):
    same = log_ratio(rollouts.old, rollouts.old, mask_BT=rollouts.mask, level="token")
    for bound in ("none", "truncate", "clamp", "mask"):
        assert torch.equal(
            importance_weights(same, bound=bound, low=0.5, high=2.0), torch.ones(2, 3)
        )
    metrics = off_policy_metrics(rollouts.old, rollouts.old, rollouts.mask)
    assert metrics["sampler_gap"] == metrics["chi2_token"] == metrics["chi2_sequence"] == 0.0


def test_a_sequence_without_tokens_does_not_count(rollouts):
    more = [torch.cat([x, torch.full((1, 3), -9.0)]) for x in (rollouts.old, rollouts.rollout)]
    mask = torch.cat([rollouts.mask, torch.zeros(1, 3, dtype=torch.bool)])
    metrics = off_policy_metrics(*more, mask)
    expected = off_policy_metrics(rollouts.old, rollouts.rollout, rollouts.mask)
    for name, value in metrics.items():
        torch.testing.assert_close(value, expected[name])


def test_effective_sample_size_ends():
    mask = torch.ones(1, 4)
    assert effective_sample_size(torch.full((1, 4), 0.3), mask).item() == pytest.approx(1.0)
    assert effective_sample_size(torch.tensor([[0.0, 5.0, 0.0, 0.0]]), mask).item() == 0.25
    assert effective_sample_size(torch.zeros(1, 4), mask) == 0.0
    assert effective_sample_size(torch.ones(1, 4), mask * 0) == 0.0


def test_off_policy_keep_by_hand():
    # Mean of -log ratio: .4 for both rows, over a threshold of .3.
    ratio = torch.tensor([[-0.6, -0.2, 9.0], [-0.6, -0.2, 9.0]])
    mask = torch.tensor([[True, True, False]] * 2)
    keep = off_policy_keep(ratio, torch.tensor([[1.0], [-1.0]]), mask_BT=mask, threshold=0.3)
    assert keep[:, 0].tolist() == [True, False]
    keep = off_policy_keep(ratio, torch.tensor([[1.0], [-1.0]]), mask_BT=mask, threshold=0.5)
    assert keep.all()
    # An advantage of 0, and a drift of just the threshold, are kept.
    ends = torch.tensor([[0.0], [-1.0]])
    half = torch.tensor([[-0.5, -0.5, 0.0]] * 2)
    assert off_policy_keep(half, ends, mask_BT=mask, threshold=0.5).all()
    keep = off_policy_keep(half, ends, mask_BT=mask, threshold=0.4)
    assert keep[:, 0].tolist() == [True, False]
