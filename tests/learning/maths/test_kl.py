"""KL estimators: golden values, and their gradients by enumeration of every outcome."""

import math

import pytest
import torch

from posttrain.learning.maths.kl import (
    KL_ESTIMATORS,
    held_near,
    kl_estimate,
    kl_in_reward,
    kl_loss,
)
from posttrain.learning.maths.ratios import bounded_ratio
from posttrain.learning.maths.reduce import loss_denominator

# A policy over four outcomes, its reference, and the older policy that sampled.
LOGITS = torch.tensor([0.5, -0.3, 0.1, 0.0], dtype=torch.float64)
REFERENCE = torch.tensor([0.0, 0.2, -0.4, 0.3], dtype=torch.float64).log_softmax(0)
OLD = torch.tensor([0.4, -0.1, 0.0, 0.1], dtype=torch.float64).log_softmax(0)

REVERSE = [0.125746, -0.108319, 0.084290, -0.101718]
FORWARD = [0.131053, -0.123139, 0.087847, -0.095760]


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ("k1", [0.2, -0.4, 0.2, -0.2, 0.1]),
        ("k2", [0.02, 0.08, 0.02, 0.02, 0.005]),
        ("k3", [0.018731, 0.091825, 0.018731, 0.021403, 0.004837]),
    ],
)
def test_golden_values(rollouts, estimator, expected):
    values = kl_estimate(rollouts.new, rollouts.ref, estimator=estimator)[rollouts.mask]
    assert values.tolist() == pytest.approx(expected, abs=1e-5)


def expected_loss(logits, estimator, *, sampled_from, ratio_weighted):
    """Mean of the loss over every outcome, weighted by the chance that the engine draws it."""
    logprobs = logits.log_softmax(0)
    behavior = logprobs.detach() if sampled_from == "policy" else OLD
    values = kl_estimate(logprobs, REFERENCE, estimator=estimator)
    if ratio_weighted:
        values = (logprobs - behavior).exp() * values
    return (behavior.exp() * values).sum()


def gradient(estimator, **options):
    logits = LOGITS.clone().requires_grad_()
    expected_loss(logits, estimator, **options).backward()
    return logits.grad.tolist()


def test_reverse_and_forward_kl_gradients_are_what_autograd_says():
    for sign, expected in ((1, REVERSE), (-1, FORWARD)):
        logits = LOGITS.clone().requires_grad_()
        policy, reference = logits.log_softmax(0), REFERENCE
        left, right = (policy, reference) if sign == 1 else (reference, policy)
        (left.exp() * (left - right)).sum().backward()
        assert logits.grad.tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("estimator", "ratio_weighted", "on_policy"),
    [
        ("k1", False, [0.0, 0.0, 0.0, 0.0]),
        ("k2", False, REVERSE),
        ("k3", False, FORWARD),
        ("k1", True, REVERSE),
        ("k3", True, REVERSE),
    ],
)
def test_gradient_table_on_policy(estimator, ratio_weighted, on_policy):
    got = gradient(estimator, sampled_from="policy", ratio_weighted=ratio_weighted)
    assert got == pytest.approx(on_policy, abs=1e-5)


@pytest.mark.parametrize(
    ("estimator", "ratio_weighted", "is_exact"),
    [
        ("k1", False, False),
        ("k2", False, False),
        ("k3", False, False),
        ("k1", True, True),
        ("k2", True, False),
        ("k3", True, True),
    ],
)
def test_gradient_table_off_policy(estimator, ratio_weighted, is_exact):
    got = gradient(estimator, sampled_from="old", ratio_weighted=ratio_weighted)
    assert (got == pytest.approx(REVERSE, abs=1e-5)) is is_exact


def test_gradient_of_ratio_weighted_k2_is_wrong_on_policy_too():
    got = gradient("k2", sampled_from="policy", ratio_weighted=True)
    assert got != pytest.approx(REVERSE, abs=1e-3)


def test_golden_gradient_of_k2_off_policy():
    got = gradient("k2", sampled_from="old", ratio_weighted=False)
    assert got == pytest.approx([0.130105, -0.119506, 0.087212, -0.097811], abs=1e-5)


def test_k1_in_the_reward_has_the_exact_gradient():
    # Score function: minus the sum over outcomes of chance x reward x gradient of its logprob.
    logits = LOGITS.clone().requires_grad_()
    logprobs = logits.log_softmax(0)
    kl = kl_estimate(logprobs, REFERENCE, estimator="k1")
    rewards = kl_in_reward(torch.zeros(4), kl, mask_BT=torch.ones(4), coefficient=1.0)
    (logprobs.detach().exp() * -rewards * logprobs).sum().backward()
    assert logits.grad.tolist() == pytest.approx(REVERSE, abs=1e-5)


def mean_under_policy(estimator):
    return expected_loss(LOGITS, estimator, sampled_from="policy", ratio_weighted=False).item()


def test_golden_means():
    assert mean_under_policy("k1") == pytest.approx(0.099228, abs=1e-5)
    assert mean_under_policy("k3") == pytest.approx(0.099228, abs=1e-5)
    assert mean_under_policy("k2") == pytest.approx(0.099770, abs=1e-5)  # biased


def test_means_of_the_other_divergences_are_their_definitions():
    policy, reference = LOGITS.softmax(0), REFERENCE.exp()
    middle = (policy + reference) / 2
    forward = (reference * (reference / policy).log()).sum()
    jensen_shannon = (
        policy * (policy / middle).log() + reference * (reference / middle).log()
    ).sum() / 2
    chi_squared = ((reference - policy).square() / policy).sum()
    assert mean_under_policy("forward") == pytest.approx(forward.item())
    assert mean_under_policy("jensen_shannon") == pytest.approx(jensen_shannon.item())
    assert mean_under_policy("chi_squared") == pytest.approx(chi_squared.item())
    reverse = ((policy - reference).square() / reference).sum()
    assert mean_under_policy("reverse_chi_squared") == pytest.approx(reverse.item())
    # The two ways round differ on these distributions: 0.2032 and 0.2114.
    assert reverse.item() != pytest.approx(chi_squared.item(), rel=0.03)


DEFINITIONS = {
    "forward": lambda policy, reference: (reference * (reference / policy).log()).sum(),
    "jensen_shannon": lambda policy, reference: (
        (
            (policy * (policy * 2 / (policy + reference)).log()).sum()
            + (reference * (reference * 2 / (policy + reference)).log()).sum()
        )
        / 2
    ),
    "chi_squared": lambda policy, reference: (reference.square() / policy).sum() - 1,
    "reverse_chi_squared": lambda policy, reference: (policy.square() / reference).sum() - 1,
}


@pytest.mark.parametrize("sampled_from", ["policy", "old"])
@pytest.mark.parametrize("estimator", sorted(DEFINITIONS))
def test_times_the_ratio_each_divergence_has_its_own_gradient_and_else_it_has_not(
    estimator, sampled_from
):
    logits = LOGITS.clone().requires_grad_()
    DEFINITIONS[estimator](logits.softmax(0), REFERENCE.exp()).backward()
    exact = logits.grad.tolist()
    weighted = gradient(estimator, sampled_from=sampled_from, ratio_weighted=True)
    plain = gradient(estimator, sampled_from=sampled_from, ratio_weighted=False)
    assert weighted == pytest.approx(exact, rel=1e-9)
    assert plain != pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize("estimator", list(KL_ESTIMATORS))
def test_equal_policies_are_exactly_zero_and_the_rest_is_never_negative(estimator):
    d = torch.arange(-30, 31, dtype=torch.float64) / 10
    values = kl_estimate(d, torch.zeros_like(d), estimator=estimator)
    assert values[30] == 0.0
    if estimator != "k1":
        assert (values > -1e-15).all()


@pytest.mark.parametrize("estimator", list(KL_ESTIMATORS))
def test_gradients_in_float64(estimator):
    d = torch.linspace(-1.3, 1.7, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda d: kl_estimate(d, torch.zeros_like(d), estimator=estimator), d
    )


def test_ceiling():
    # exp(4) - 1 - 4 = 49.6 is cut to 10, as in verl; exp(1) - 2 = .718 is not.
    reference = torch.tensor([4.0, 1.0])
    values = kl_estimate(torch.zeros(2), reference, estimator="k3", ceiling=10.0)
    assert values.tolist() == pytest.approx([10.0, math.e - 2])


def test_kl_loss_by_hand_and_its_split(rollouts):
    # k1 on F adds up to .2 - .4 + .2 - .2 + .1 = -.1, over 5 tokens -.02, times .5.
    kl = kl_estimate(rollouts.new, rollouts.ref, estimator="k1")
    options = {"coefficient": 0.5, "aggregation": "token_mean", "denominator": 5}
    loss, metrics = kl_loss(kl, rollouts.mask, **options)
    assert loss.item() == pytest.approx(-0.01, abs=1e-6)
    assert metrics["kl"].item() == pytest.approx(-0.02, abs=1e-6)
    parts = [kl_loss(kl[row], rollouts.mask[row], **options)[0] for row in ([0], [1])]
    assert sum(parts).item() == pytest.approx(loss.item())


def test_ratio_weighted_kl_loss_by_hand(rollouts):
    # On-policy the ratio is 1 in value, and its gradient turns k1 into d x (d + 1)'s: 1 + d.
    new = rollouts.new.clone().requires_grad_()
    kl = kl_estimate(new, rollouts.ref, estimator="k1")
    loss, _ = kl_loss(
        kl,
        rollouts.mask,
        coefficient=1.0,
        aggregation="token_mean",
        denominator=loss_denominator(rollouts.mask, "token_mean"),
        log_ratio_BT=new - new.detach(),
    )
    loss.backward()
    expected = torch.tensor([[1.2, 0.6, 1.2], [0.8, 1.1, 0.0]]) / 5
    torch.testing.assert_close(new.grad, expected)


def test_kl_in_reward_leaves_masked_tokens_and_the_graph_alone(rollouts):
    kl = torch.full((2, 3), 2.0, requires_grad=True)
    rewards = kl_in_reward(torch.ones(2, 3), kl, mask_BT=rollouts.mask, coefficient=0.1)
    assert rewards[1].tolist() == pytest.approx([0.8, 0.8, 1.0])
    assert not rewards.requires_grad


@pytest.mark.parametrize("estimator", list(KL_ESTIMATORS))
@pytest.mark.parametrize("ceiling", [None, 10.0])
def test_no_value_or_gradient_overflows_in_single_precision(estimator, ceiling):
    # exp(89) is above the greatest float32, and its square long before.
    d = torch.tensor([-500.0, -90.0, -45.0, 45.0, 90.0, 500.0], requires_grad=True)
    values = kl_estimate(d, torch.zeros(6), estimator=estimator, ceiling=ceiling)
    values.sum().backward()
    assert values.isfinite().all()
    assert d.grad.isfinite().all()
    if estimator != "k1":
        assert (values > 0).all()


def weighted(estimator, *, policy, old, reference):
    """Ratio times estimate at one token, as the regularizer composes them, and its gradient."""
    leaf = torch.tensor(policy, requires_grad=True)
    ends = {"old_BT": torch.tensor(old), "reference_BT": torch.tensor(reference)}
    held = held_near(leaf, **ends)
    value = bounded_ratio(held - ends["old_BT"]) * kl_estimate(
        held, ends["reference_BT"], estimator=estimator
    )
    value.backward()
    return value.item(), leaf.grad.item()


@pytest.mark.parametrize("fell", [21.0, 25.0, 40.0, 90.0, 300.0])
def test_times_the_ratio_a_token_that_the_policy_has_left_costs_what_it_costs(fell):
    # ratio k3 = reference / old - ratio (1 + fell): 1 - exp(-21) 22 or nearer to 1 still; its
    # gradient, -ratio fell, is below 2e-8.
    value, gradient = weighted("k3", policy=-1.0 - fell, old=-1.0, reference=-1.0)
    assert value == pytest.approx(1.0, abs=1e-6)
    assert gradient == pytest.approx(0.0, abs=2e-8)


def test_times_the_ratio_a_reference_that_likes_the_token_more_counts_by_how_much_more():
    # reference / old = exp(3); the policy is 18 nats below old and 21 below the reference.
    value, gradient = weighted("k3", policy=-22.0, old=-4.0, reference=-1.0)
    assert value == pytest.approx(math.exp(3), rel=1e-6)
    assert gradient == 0.0


def test_nothing_is_held_within_twenty_nats():
    policy = torch.tensor([-1.0, -20.5, -3.0])
    held = held_near(policy, old_BT=torch.full((3,), -1.0), reference_BT=torch.full((3,), -2.0))
    assert torch.equal(held, policy)
