"""Golden values of the corrections on fixture F: w = exp(old - rollout)."""

import pytest
import torch

from posttrain.learning.algorithms.batches import PolicyBatch
from posttrain.learning.algorithms.objective import policy_loss as weighted_loss
from posttrain.learning.algorithms.regularizers.base import BatchShare
from posttrain.learning.algorithms.surrogates.clip import ClipSurrogate
from posttrain.learning.algorithms.token_weights.drift import DriftWeight
from posttrain.learning.maths.correction import (
    importance_weights,
    log_linear_proximal,
    within_band,
)
from posttrain.learning.maths.ratios import log_ratio


def token_loss(part, logprobs, ratio, advantages, mask=None):
    """The loss of a surrogate that is handed the log-ratio as it is."""
    mask = torch.ones_like(ratio, dtype=torch.bool) if mask is None else mask
    batch = PolicyBatch(mask_BT=mask, advantages_BT=advantages, sampled_logprobs_BT=ratio)
    return part.token_loss(logprobs, ratio, batch)


def clipped(ratio, advantages, **fields):
    return token_loss(ClipSurrogate(**fields), ratio, ratio, advantages)


def policy_loss(surrogate, mask, *, aggregation, denominator, weights_BT=None):
    return weighted_loss(surrogate, BatchShare(mask, aggregation, denominator), weights_BT)


def engine_ratio(rollouts, level="token"):
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
    weights = importance_weights(engine_ratio(rollouts), bound=bound, low=low, high=high)
    assert weights[rollouts.mask].tolist() == pytest.approx(expected, abs=1e-5)


def test_golden_sequence_weights(rollouts):
    ratio = engine_ratio(rollouts, "sequence_sum")
    weights = importance_weights(ratio, bound="truncate", high=1.1)
    assert weights[:, 0].tolist() == pytest.approx([0.860708, 1.0], abs=1e-5)


def test_golden_icepop_diagnostics(rollouts):
    weights = importance_weights(engine_ratio(rollouts), bound="mask", low=0.9, high=1.1)
    kept = weights[rollouts.mask]
    # Kish's effective share of the tokens.
    size = kept.sum() ** 2 / (5 * (kept**2).sum())
    assert size.item() == pytest.approx(0.597734, abs=1e-5)
    outside = ~within_band(engine_ratio(rollouts), low=0.9, high=1.1)
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
    weights = importance_weights(engine_ratio(rollouts), bound=bound, low=0.9, high=1.1)
    assert corrected_loss(rollouts, weights) == pytest.approx(expected, abs=1e-5)


def test_golden_ppo_with_sequence_mask(rollouts):
    # Geometric means exp(-.05) = .951 and 1 lie in the band; the token weights stay unbounded.
    keep = within_band(engine_ratio(rollouts, "sequence_mean"), low=0.9, high=1.1)
    weights = importance_weights(engine_ratio(rollouts), bound="none") * keep
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
    keep = within_band(engine_ratio(rollouts, "sequence_mean"), low=0.96, high=1.1)
    assert keep.tolist() == [[False] * 3, [True] * 3]


def test_golden_decoupled_ppo_with_the_old_policy_as_proximal(rollouts):
    proximal = log_linear_proximal(rollouts.rollout, rollouts.old, position=1.0)
    weights = importance_weights(
        log_ratio(proximal, rollouts.rollout, mask_BT=rollouts.mask, level="token"), bound="none"
    )
    assert corrected_loss(rollouts, weights) == pytest.approx(-0.131568, abs=1e-5)


def test_log_linear_proximal_by_hand():
    behavior, current = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-3.0, -1.0]])
    # Version 5 sampled, 8 is current, 7 is proximal: two thirds of the way.
    proximal = log_linear_proximal(behavior, current.requires_grad_(), position=(7 - 5) / (8 - 5))
    assert proximal.tolist() == [pytest.approx([-1 - 4 / 3, -2 + 2 / 3])]
    assert not proximal.requires_grad
    assert torch.equal(log_linear_proximal(behavior, current, position=0.0), behavior)


def test_the_exact_engine_needs_no_correction(rollouts):
    same = log_ratio(rollouts.old, rollouts.old, mask_BT=rollouts.mask, level="token")
    for bound in ("none", "truncate", "clamp", "mask"):
        assert torch.equal(
            importance_weights(same, bound=bound, low=0.5, high=2.0), torch.ones(2, 3)
        )


def off_policy_keep(ratio, advantages, *, mask_BT, threshold):
    batch = PolicyBatch(
        mask_BT=mask_BT, advantages_BT=advantages, sampled_logprobs_BT=torch.zeros_like(ratio)
    )
    return DriftWeight(threshold=threshold).of_update(ratio, old_logprobs_BT=ratio, batch=batch)


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
