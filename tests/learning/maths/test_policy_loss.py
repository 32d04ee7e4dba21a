"""Golden values of the surrogates on fixture F, and the invariances of the loss."""

import math

import pytest
import torch

from posttrain.learning.algorithms.batches import PolicyBatch
from posttrain.learning.algorithms.objective import policy_loss as weighted_loss
from posttrain.learning.algorithms.regularizers.base import BatchShare
from posttrain.learning.algorithms.regularizers.entropy import EntropyRegularizer
from posttrain.learning.algorithms.regularizers.imitation import ImitationRegularizer
from posttrain.learning.algorithms.surrogates.cispo import CispoSurrogate
from posttrain.learning.algorithms.surrogates.clip import ClipSurrogate
from posttrain.learning.algorithms.surrogates.gmpo import GmpoSurrogate
from posttrain.learning.algorithms.surrogates.regression import RegressionSurrogate
from posttrain.learning.algorithms.surrogates.reinforce import ReinforceSurrogate
from posttrain.learning.algorithms.surrogates.sapo import SapoSurrogate
from posttrain.learning.algorithms.surrogates.squared import SquaredSurrogate
from posttrain.learning.maths.ratios import RATIO_LEVELS, bounded_ratio, log_ratio, ratio_metrics
from posttrain.learning.maths.reduce import TOKEN_WEIGHT_FORMULAS, loss_denominator


def token_loss(part, logprobs, ratio, advantages, mask=None):
    """The loss of a surrogate that is handed the log-ratio as it is."""
    mask = torch.ones_like(ratio, dtype=torch.bool) if mask is None else mask
    batch = PolicyBatch(mask_BT=mask, advantages_BT=advantages, sampled_logprobs_BT=ratio)
    return part.token_loss(logprobs, ratio, batch)


def clipped(ratio, advantages, **fields):
    return token_loss(ClipSurrogate(**fields), ratio, ratio, advantages)


def cispo(logprobs, advantages, *, log_ratio_BT, clip, high, low=0.0):
    part = CispoSurrogate(bound=clip, low=low if clip == "two_sided" else None, high=high)
    return token_loss(part, logprobs, log_ratio_BT, advantages)


def soft_gated(ratio, advantages, **fields):
    return token_loss(SapoSurrogate(**fields), ratio, ratio, advantages)


def geometric_mean(ratio, advantages, *, mask_BT, low, high):
    part = GmpoSurrogate(log_low=low, log_high=high)
    return token_loss(part, ratio, ratio, advantages, mask_BT.bool())


def squared(ratio, advantages, *, tau):
    return token_loss(SquaredSurrogate(level="token", tau=tau), ratio, ratio, advantages)


def reinforce(logprobs, advantages):
    return token_loss(ReinforceSurrogate(), logprobs, logprobs, advantages)


def policy_loss(surrogate, mask, *, aggregation, denominator, weights_BT=None):
    return weighted_loss(surrogate, BatchShare(mask, aggregation, denominator), weights_BT)


def ratio_of(rollouts, level="token"):
    return log_ratio(rollouts.new, rollouts.old, mask_BT=rollouts.mask, level=level)


def loss_of(surrogate, rollouts, aggregation):
    denominator = loss_denominator(rollouts.mask, aggregation, constant_length=3)
    return policy_loss(surrogate, rollouts.mask, aggregation=aggregation, denominator=denominator)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("token_mean", -0.160260),  # DAPO; verl, OpenRLHF, slime, AReaL
        ("sequence_mean_token_mean", 0.045605),  # the GRPO paper; verl, OpenRLHF
        ("sequence_mean_token_sum", -0.400651),
        ("constant_length", -0.133550),  # Dr.GRPO, L = 3
    ],
)
def test_golden_clip_higher(rollouts, aggregation, expected):
    surrogate = clipped(ratio_of(rollouts), rollouts.advantages, low=0.2, high=0.28)
    loss, metrics = loss_of(surrogate, rollouts, aggregation)
    assert loss.item() == pytest.approx(expected, abs=1e-5)
    assert metrics["clip_fraction"].item() == pytest.approx(0.2)


def test_golden_approximate_kl(rollouts):
    metrics = ratio_metrics(ratio_of(rollouts), rollouts.mask)
    assert metrics["approx_kl"].item() == pytest.approx(0.02, abs=1e-6)
    # Log-ratios .1 -.3 .1 -.3 .3 add up to -.1.
    ratios = 2 * math.exp(0.1) + 2 * math.exp(-0.3) + math.exp(0.3)
    assert metrics["ratio_mean"].item() == pytest.approx(ratios / 5)
    assert metrics["approx_kl_k3"].item() == pytest.approx(ratios / 5 - 1 + 0.02, abs=1e-6)


def test_mean_of_micro_batch_means_is_the_other_number(rollouts):
    # The trap behind several bug reports: token means, averaged over micro-batches of one.
    surrogate = clipped(ratio_of(rollouts), rollouts.advantages, low=0.2, high=0.28)
    means = [surrogate.loss_BT[row][rollouts.mask[row]].mean().item() for row in (0, 1)]
    assert sum(means) / 2 == pytest.approx(0.045605, abs=1e-5)


@pytest.mark.parametrize("level", ["sequence_mean", "sequence_token"])
@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("sequence_mean_token_mean", 0.016392), ("token_mean", -0.180330)],  # paper, verl; AReaL
)
def test_golden_gspo(rollouts, level, aggregation, expected):
    ratio = ratio_of(rollouts, level)
    assert ratio.exp()[:, 0].tolist() == pytest.approx([0.967216, 1.0], abs=1e-5)
    surrogate = clipped(ratio, rollouts.advantages, low=0.2, high=0.28)
    assert loss_of(surrogate, rollouts, aggregation)[0].item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("clip", "low", "high", "expected"),
    [
        ("two_sided", 0.2, 0.28, 0.264944),  # verl, slime, SkyRL
        ("upper", 0.0, 0.28, 0.249557),  # open-instruct
        ("cap", 0.0, 5.0, 0.236983),  # TRL
    ],
)
def test_golden_cispo(rollouts, clip, low, high, expected):
    surrogate = cispo(
        rollouts.new,
        rollouts.advantages,
        log_ratio_BT=ratio_of(rollouts),
        clip=clip,
        low=low,
        high=high,
    )
    loss, metrics = loss_of(surrogate, rollouts, "token_mean")
    assert loss.item() == pytest.approx(expected, abs=1e-5)
    # Ratios 1.11 .74 1.11 .74 1.35: three lie outside of [.8, 1.28], one of them above.
    fraction = {"two_sided": 0.6, "upper": 0.2, "cap": 0.0}[clip]
    assert metrics["clip_fraction"].item() == pytest.approx(fraction)


def test_cispo_below_the_band():
    # At ratio .1 only the two-sided definition lifts the weight, to .8.
    ratio, one = torch.tensor([[math.log(0.1)]]), torch.ones(1, 1)
    weights = [
        -cispo(one, one, log_ratio_BT=ratio, clip=clip, low=0.2, high=0.28).loss_BT.item()
        for clip in ("two_sided", "upper", "cap")
    ]
    assert weights == pytest.approx([0.8, 0.1, 0.1])


def test_golden_sapo(rollouts):
    surrogate = soft_gated(
        ratio_of(rollouts), rollouts.advantages, positive_tau=1.0, negative_tau=1.05
    )
    loss, _ = loss_of(surrogate, rollouts, "sequence_mean_token_mean")
    assert loss.item() == pytest.approx(-0.017591, abs=1e-5)


def test_golden_gmpo(rollouts):
    surrogate = geometric_mean(
        ratio_of(rollouts), rollouts.advantages, mask_BT=rollouts.mask, low=0.2, high=0.28
    )
    loss, metrics = loss_of(surrogate, rollouts, "sequence_mean_token_mean")
    assert loss.item() == pytest.approx(0.042027, abs=1e-5)
    # Only -.3 of the second sequence: below -.2 where the advantage is negative.
    assert metrics["clip_fraction"].item() == pytest.approx(0.2)


def test_reinforce_by_hand(rollouts):
    # -(-.9 - 2.3 - .4) + (-1 - .9) = 3.6 - 1.9 = 1.7 over 5 tokens.
    loss, _ = loss_of(reinforce(rollouts.new, rollouts.advantages), rollouts, "token_mean")
    assert loss.item() == pytest.approx(0.34)


def test_squared_by_hand(rollouts):
    # Sums of log-ratios: .1 - .3 + .1 = -.1 and -.3 + .3 = 0. With A = +-1, tau = .5:
    # -1 x -.1 + .25 x .01 = .1025 and 0; mean over sequences .05125.
    surrogate = squared(ratio_of(rollouts, "sequence_sum"), rollouts.advantages, tau=0.5)
    loss, _ = loss_of(surrogate, rollouts, "sequence_mean_token_mean")
    assert loss.item() == pytest.approx(0.05125)
    with pytest.raises(ValueError, match="tau"):
        squared(ratio_of(rollouts), rollouts.advantages, tau=-1.0)


def test_squared_is_least_where_the_log_ratio_is_advantage_over_tau():
    ratio = torch.tensor([[1.5]], requires_grad=True)
    squared(ratio, torch.tensor([[3.0]]), tau=2.0).loss_BT.sum().backward()
    assert ratio.grad.item() == 0.0


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "is_clipped"),
    [
        (1.0, 1.5, -1.28, True),  # good and already likelier: bounded above
        (1.0, 0.5, -0.5, False),  # good and less likely: full force to bring it back
        (-1.0, 0.5, 0.8, True),  # bad and already less likely: bounded below
        (-1.0, 1.5, 1.5, False),
        (-1.0, 5.0, 3.0, True),  # bad and far likelier: only the dual clip stops it
        (-2.0, 5.0, 6.0, True),
        (-2.0, 2.0, 4.0, False),
        (1.0, 5.0, -1.28, True),  # the dual clip is for negative advantages alone
        (0.0, 5.0, 0.0, False),
    ],
)
def test_clip_case_by_case(advantage, ratio, loss, is_clipped):
    log_ratio_BT = torch.tensor([[math.log(ratio)]], requires_grad=True)
    surrogate = clipped(log_ratio_BT, torch.tensor([[advantage]]), low=0.2, high=0.28, dual=3.0)
    assert surrogate.loss_BT.item() == pytest.approx(loss)
    assert surrogate.clipped_BT.item() is is_clipped
    surrogate.loss_BT.sum().backward()
    expected = 0.0 if is_clipped else -advantage * ratio
    assert log_ratio_BT.grad.item() == pytest.approx(expected)


def surrogates_of(logprobs, old, advantages, mask):
    token = log_ratio(logprobs, old, mask_BT=mask, level="token")
    sequence = log_ratio(logprobs, old, mask_BT=mask, level="sequence_mean")
    sequence_token = log_ratio(logprobs, old, mask_BT=mask, level="sequence_token")
    total = log_ratio(logprobs, old, mask_BT=mask, level="sequence_sum")
    return {
        "reinforce": reinforce(logprobs, advantages),
        "ppo": clipped(token, advantages, low=0.2, high=0.28, dual=3.0),
        "gspo": clipped(sequence, advantages, low=0.2, high=0.28),
        "gspo_token": clipped(sequence_token, advantages, low=0.2, high=0.28),
        "cispo": cispo(
            logprobs, advantages, log_ratio_BT=token, clip="two_sided", low=0.2, high=0.28
        ),
        "sapo": soft_gated(token, advantages, positive_tau=1.0, negative_tau=1.05),
        "gmpo": geometric_mean(token, advantages, mask_BT=mask, low=0.4, high=0.4),
        "kimi": squared(token, advantages, tau=0.1),
        "kimi_sequence": squared(total, advantages, tau=0.1),
    }


SURROGATES = [
    "reinforce", "ppo", "gspo", "gspo_token", "cispo", "sapo", "gmpo", "kimi", "kimi_sequence",
]  # fmt: skip


def random_batch(num_sequences=4, num_tokens=5, spread=0.3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    old = -torch.rand(num_sequences, num_tokens, generator=generator, dtype=dtype) - 0.1
    new = old + spread * torch.randn(num_sequences, num_tokens, generator=generator, dtype=dtype)
    advantages = torch.randn(num_sequences, 1, generator=generator, dtype=dtype)
    lengths = torch.randint(1, num_tokens + 1, (num_sequences, 1), generator=generator)
    return new, old, advantages, torch.arange(num_tokens) < lengths


@pytest.mark.parametrize("name", SURROGATES)
def test_on_policy_gradient_is_that_of_reinforce(name):
    _, old, advantages, mask = random_batch()
    gradients = {}
    for key in (name, "reinforce"):
        new = old.clone().requires_grad_()
        surrogate = surrogates_of(new, old, advantages, mask)[key]
        policy_loss(surrogate, mask, aggregation="sequence_mean_token_mean", denominator=len(old))[
            0
        ].backward()
        gradients[key] = new.grad
    if name == "kimi_sequence":  # a sum over tokens, not a mean
        gradients[name] = gradients[name] / mask.sum(-1, keepdim=True)
    torch.testing.assert_close(gradients[name], gradients["reinforce"])


@pytest.mark.parametrize("name", sorted(set(SURROGATES) - {"cispo", "gspo_token"}))
def test_gradients_in_float64(name):
    """CISPO and GSPO-token stop part of the gradient on purpose, so differences cannot show it."""
    new, old, advantages, mask = random_batch()

    def loss(new):
        surrogate = surrogates_of(new, old, advantages, mask)[name]
        return policy_loss(surrogate, mask, aggregation="token_mean", denominator=9.0)[0]

    assert torch.autograd.gradcheck(loss, new.requires_grad_())


def test_gspo_token_gradient_is_the_frozen_sequence_ratio_per_token():
    new, old, advantages, mask = random_batch(spread=0.05)
    new.requires_grad_()
    surrogate = surrogates_of(new, old, advantages, mask)["gspo_token"]
    surrogate.loss_BT.masked_fill(~mask, 0).sum().backward()
    difference = (new - old).detach().masked_fill(~mask, 0)
    ratio = (difference.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)).exp()
    torch.testing.assert_close(new.grad, (-advantages * ratio * mask))


def test_cispo_gradient_is_the_bounded_weight():
    new, old, advantages, mask = random_batch()
    new.requires_grad_()
    surrogates_of(new, old, advantages, mask)["cispo"].loss_BT.sum().backward()
    weight = (new - old).detach().masked_fill(~mask, 0).exp().clamp(0.8, 1.28)
    torch.testing.assert_close(new.grad, -advantages * weight)


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize("aggregation", list(TOKEN_WEIGHT_FORMULAS))
def test_any_split_gives_the_gradient_of_one_batch(name, aggregation):
    new, old, advantages, mask = random_batch(dtype=torch.float32)
    correction = torch.rand(new.shape, generator=torch.Generator().manual_seed(4))
    denominator = loss_denominator(mask, aggregation, constant_length=5)

    def gradient(parts):
        leaf = new.clone().requires_grad_()
        for rows in torch.arange(len(new)).split(parts):
            surrogate = surrogates_of(leaf[rows], old[rows], advantages[rows], mask[rows])[name]
            loss, _ = policy_loss(
                surrogate,
                mask[rows],
                aggregation=aggregation,
                denominator=denominator,
                weights_BT=correction[rows],
            )
            loss.backward()
        return leaf.grad

    for parts in ([1, 3], [2, 2], [1, 1, 1, 1]):
        torch.testing.assert_close(gradient(parts), gradient([4]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", SURROGATES)
def test_padding_is_never_read(name):
    new, old, advantages, mask = random_batch()
    wide = torch.nn.functional.pad

    def loss(new, old, mask):
        surrogate = surrogates_of(new, old, advantages, mask)[name]
        return policy_loss(surrogate, mask, aggregation="sequence_mean_token_mean", denominator=4)[
            0
        ]

    padded = loss(wide(new, (0, 3), value=-99.0), wide(old, (0, 3), value=5.0), wide(mask, (0, 3)))
    torch.testing.assert_close(padded, loss(new, old, mask))


@pytest.mark.parametrize("name", SURROGATES)
def test_a_far_away_policy_gives_finite_gradients(name):
    old = torch.tensor([[-200.0, -0.1]])
    new = torch.tensor([[-0.1, -200.0]], requires_grad=True)
    for advantage in (1.0, -1.0):
        surrogate = surrogates_of(new, old, torch.tensor([[advantage]]), torch.ones(1, 2))[name]
        loss, _ = policy_loss(surrogate, torch.ones(1, 2), aggregation="token_mean", denominator=2)
        (gradient,) = torch.autograd.grad(loss, new)
        assert torch.isfinite(gradient).all()


def test_weights_multiply_the_token_losses_and_carry_no_gradient(rollouts):
    weights = torch.tensor([[2.0, 0.0, 1.0], [1.0, 1.0, 9.0]], requires_grad=True)
    new = rollouts.new.clone().requires_grad_()
    loss, metrics = policy_loss(
        reinforce(new, rollouts.advantages),
        rollouts.mask,
        aggregation="token_mean",
        denominator=5,
        weights_BT=weights,
    )
    # (2 x .9 + 0 + .4 - 1 - .9) / 5
    assert loss.item() == pytest.approx(0.3 / 5)
    loss.backward()
    assert weights.grad is None
    assert metrics["weight_mean"].item() == pytest.approx(1.0)
    assert metrics["weight_zero_fraction"].item() == pytest.approx(0.2)


@pytest.mark.parametrize("level", list(RATIO_LEVELS))
def test_the_same_policy_has_log_ratio_exactly_zero(rollouts, level):
    same = log_ratio(rollouts.old, rollouts.old, mask_BT=rollouts.mask, level=level)
    assert same.abs().max() == 0
    assert log_ratio(rollouts.new, rollouts.old + 1, mask_BT=rollouts.mask, level=level)[1, 2] == 0
    empty = log_ratio(rollouts.new, rollouts.old, mask_BT=rollouts.mask & False, level=level)
    assert empty.abs().max() == 0


def test_the_ratio_is_bounded_far_out_and_exact_before():
    ratio = bounded_ratio(torch.tensor([-30.0, -20.0, 0.0, 20.0, 30.0]))
    assert ratio.tolist() == pytest.approx(
        [math.exp(-20), math.exp(-20), 1.0, math.exp(20), math.exp(20)]
    )


def test_entropy_bonus():
    entropy = torch.tensor([[1.0, 3.0]])
    batch = PolicyBatch(
        mask_BT=torch.ones(1, 2), advantages_BT=entropy, sampled_logprobs_BT=entropy
    )
    bonus, metrics = EntropyRegularizer(coefficient=0.5, place="loss").loss(
        entropy,
        log_ratio_BT=entropy,
        entropy_BT=entropy,
        batch=batch,
        share=BatchShare(batch.mask_BT, "token_mean", 2),
    )
    assert bonus == -1.0
    assert metrics["entropy_exact"] == 2.0


def test_a_turn_is_regressed_to_its_advantage_and_shared_out_over_its_tokens():
    """An episode says two tokens, reads one, says one; another says one. By hand, beta 2."""
    mask = torch.tensor([[False, True, True, False, True], [False, True, False, False, False]])
    ratio = torch.tensor([[9.0, 0.1, 0.3, 9.0, -0.2], [9.0, 0.5, 9.0, 9.0, 9.0]]) * mask
    ratio.requires_grad_()
    advantages = torch.tensor([[9.0, 0.5, 0.5, 9.0, -1.0], [9.0, 1.0, 9.0, 9.0, 9.0]]) * mask
    found = token_loss(RegressionSurrogate(beta=2.0), ratio, ratio, advantages, mask)
    loss, _ = policy_loss(found, mask, aggregation="sequence_mean_token_sum", denominator=2)
    # (2 x .4 - .5)^2 + (2 x -.2 + 1)^2 = .09 + .36, and (2 x .5 - 1)^2 = 0.
    assert loss.item() == pytest.approx((0.09 + 0.36) / 2)
    assert found.loss_BT[0].tolist() == pytest.approx([0.0, 0.045, 0.045, 0.0, 0.36])
    loss.backward()
    # 2 beta (beta l - A) / B at each token of the turn, whose optimum has no gradient.
    assert ratio.grad[0].tolist() == pytest.approx([0.0, 0.6, 0.6, 0.0, 1.2])
    assert ratio.grad[1].tolist() == pytest.approx([0.0] * 5)


def test_what_did_better_than_its_group_is_imitated():
    logprobs = torch.tensor([[-1.0, -3.0], [-2.0, -5.0]])
    batch = PolicyBatch(
        mask_BT=torch.tensor([[1.0, 1.0], [1.0, 0.0]]),
        advantages_BT=torch.tensor([[0.7], [-0.7]]),
        sampled_logprobs_BT=logprobs,
    )
    cost, metrics = ImitationRegularizer(coefficient=0.5).loss(
        logprobs,
        log_ratio_BT=logprobs,
        entropy_BT=None,
        batch=batch,
        share=BatchShare(batch.mask_BT, "token_mean", 3),
    )
    # Half of (1 + 3) / 3: the second row did worse.
    assert cost == pytest.approx(2 / 3)
    assert metrics["imitated"] == pytest.approx(2 / 3)
