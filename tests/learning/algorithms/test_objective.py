"""The objective as a composition: the default bit for bit, gradients by enumeration, refusals."""

from dataclasses import replace

import pytest
import torch

from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch
from posttrain.learning.algorithms.credit_assignment import advantages
from posttrain.learning.algorithms.objective import denominator, policy_objective
from posttrain.learning.maths.kl import kl_estimate, kl_loss
from posttrain.learning.maths.ratios import bounded_ratio, log_ratio, ratio_metrics
from posttrain.learning.maths.reduce import aggregate, masked_mean


@pytest.fixture
def rollouts():
    """A float32 batch as the learner has it, and logprobs of the policy that learns."""
    generator = torch.Generator().manual_seed(3)
    sampled = -3 * torch.rand(5, 9, generator=generator)
    mask = torch.arange(9) < torch.tensor([9, 3, 7, 1, 5])[:, None]
    batch = PolicyBatch(
        mask_BT=mask,
        advantages_BT=torch.randn(5, 1, generator=generator),
        sampled_logprobs_BT=sampled,
        reference_logprobs_BT=sampled + 0.3 * torch.randn(5, 9, generator=generator),
    )
    return batch, sampled + 0.3 * torch.randn(5, 9, generator=generator)


@pytest.mark.parametrize(("kl", "entropy"), [(0.0, 0.0), (0.02, 0.01)])
def test_the_default_is_bit_for_bit_the_plain_composition(choose, rollouts, kl, entropy):
    batch, values = rollouts
    sections = {
        "regularizers": {
            "kl": {"coefficient": kl, "estimator": "k3", "ratio_weighted": True} if kl else None,
            "entropy": {"coefficient": entropy} if entropy else None,
        }
    }
    whole = 40

    def plain(new_BT):
        old_BT, mask_BT = batch.sampled_logprobs_BT, batch.mask_BT
        ratio_BT = log_ratio(new_BT, old_BT, mask_BT=mask_BT, level="token")
        advantages_BT = batch.advantages_BT - entropy * old_BT
        r_BT = bounded_ratio(ratio_BT)
        plain_BT = -advantages_BT * r_BT
        bounded_BT = -advantages_BT * r_BT.clamp(1 - 0.2, 1 + 0.28)
        loss_BT = torch.maximum(plain_BT, bounded_BT)
        loss = aggregate(loss_BT, mask_BT, aggregation="token_mean", denominator=whole)
        metrics = {"clip_fraction": masked_mean(bounded_BT > plain_BT, mask_BT)}
        metrics |= ratio_metrics(ratio_BT, mask_BT)
        if kl:
            estimate_BT = kl_estimate(new_BT, batch.reference_logprobs_BT, estimator="k3")
            penalty, more = kl_loss(
                estimate_BT,
                mask_BT,
                coefficient=kl,
                aggregation="token_mean",
                denominator=whole,
                log_ratio_BT=ratio_BT,
            )
            loss, metrics = loss + penalty, metrics | more
        return loss, metrics

    def composed(new_BT):
        algorithm = choose("default", **sections)
        return policy_objective(algorithm, new_BT, batch=batch, denominator=whole)

    results = []
    for function in (plain, composed):
        leaf = values.clone().requires_grad_()
        loss, metrics = function(leaf)
        loss.backward()
        results.append((loss, leaf.grad, metrics))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert list(results[0][2]) == list(results[1][2])
    assert all(torch.equal(results[0][2][name], results[1][2][name]) for name in results[0][2])
    assert not any(value.requires_grad for value in results[1][2].values())


# A policy over four tokens, its reference, and an older policy that sampled; the golden gradients
# are those of KL(policy || reference) and KL(reference || policy) with respect to the logits.
LOGITS = torch.tensor([0.5, -0.3, 0.1, 0.0], dtype=torch.float64)
REFERENCE = torch.tensor([0.0, 0.2, -0.4, 0.3], dtype=torch.float64).log_softmax(-1)
OLDER = torch.tensor([0.4, -0.1, 0.0, 0.1], dtype=torch.float64).log_softmax(-1)
REVERSE = [0.125746, -0.108319, 0.084290, -0.101718]
FORWARD = [0.131053, -0.123139, 0.087847, -0.095760]


def expected_gradient(algorithm, *, on_policy, rewards=None):
    """Gradient of the expected loss over the four one-token rollouts, each with its chance."""
    logits = LOGITS.clone().requires_grad_()
    logprobs = logits.log_softmax(-1)
    behavior = logprobs.detach() if on_policy else OLDER
    loss = 0.0
    for token in range(4):
        batch = PolicyBatch(
            mask_BT=torch.tensor([[True]]),
            advantages_BT=torch.zeros(1, 1) if rewards is None else rewards[token].view(1, 1),
            sampled_logprobs_BT=behavior[token].view(1, 1),
            reference_logprobs_BT=REFERENCE[token].view(1, 1),
        )
        share, _ = policy_objective(
            algorithm, logprobs[token].view(1, 1), batch=batch, denominator=1
        )
        loss = loss + behavior[token].exp() * share
    return torch.autograd.grad(loss, logits)[0].tolist()


@pytest.mark.parametrize(
    ("estimator", "weighted", "on_policy", "expected"),
    [
        ("k2", False, True, REVERSE),
        ("k2", False, False, [0.130105, -0.119506, 0.087212, -0.097811]),
        ("k3", False, True, FORWARD),
        ("k1", True, True, REVERSE),
        ("k1", True, False, REVERSE),
        ("k3", True, True, REVERSE),
        ("k3", True, False, REVERSE),
    ],
)
def test_gradient_of_each_divergence_in_the_loss(choose, estimator, weighted, on_policy, expected):
    algorithm = choose(
        "default",
        regularizers={
            "kl": {"coefficient": 1.0, "estimator": estimator, "ratio_weighted": weighted}
        },
    )
    found = expected_gradient(algorithm, on_policy=on_policy)
    assert found == pytest.approx(expected, abs=1e-5)


def test_k1_in_the_reward_has_the_gradient_of_the_reverse_divergence(choose):
    algorithm = choose(
        "reinforce", regularizers={"kl": {"coefficient": 1.0, "estimator": "k1", "place": "reward"}}
    )
    logprobs = LOGITS.log_softmax(-1)
    outcomes = RolloutBatch(
        rewards_B=torch.zeros(4, dtype=torch.float64),
        group_B=torch.zeros(4),
        mask_BT=torch.ones(4, 1, dtype=torch.bool),
        sampled_logprobs_BT=logprobs[:, None],
        reference_logprobs_BT=REFERENCE[:, None],
    )
    rewards = advantages(algorithm, outcomes).advantages_BT
    found = expected_gradient(algorithm, on_policy=True, rewards=rewards)
    assert found == pytest.approx(REVERSE, abs=1e-5)


def entropy_of(logits):
    logprobs = logits.log_softmax(-1)
    return -(logprobs.exp() * logprobs).sum(-1)


def test_entropy_at_either_place_has_the_gradient_of_the_entropy(choose):
    logits = LOGITS.clone().requires_grad_()
    wanted = torch.autograd.grad(-0.5 * entropy_of(logits), logits)[0].tolist()
    paid = choose("reinforce", regularizers={"entropy": {"coefficient": 0.5, "place": "advantage"}})
    assert expected_gradient(paid, on_policy=True) == pytest.approx(wanted, abs=1e-9)

    added = choose("default", regularizers={"entropy": {"coefficient": 0.5, "place": "loss"}})
    leaf = LOGITS.clone().requires_grad_()
    logprobs = leaf.log_softmax(-1)
    batch = PolicyBatch(
        mask_BT=torch.tensor([[True]]),
        advantages_BT=torch.zeros(1, 1),
        sampled_logprobs_BT=logprobs[:1].detach()[None],
    )
    loss, metrics = policy_objective(
        added,
        logprobs[:1][None],
        batch=batch,
        denominator=1,
        entropy_BT=entropy_of(leaf)[None, None],
    )
    assert torch.autograd.grad(loss, leaf)[0].tolist() == pytest.approx(wanted, abs=1e-9)
    assert metrics["entropy_exact"].item() == pytest.approx(entropy_of(LOGITS).item())


def test_gspo_and_gspo_token_have_one_gradient_where_a_rollout_has_one_advantage(choose, rollouts):
    batch, values = rollouts
    batch = replace(batch, old_logprobs_BT=batch.sampled_logprobs_BT)
    gradients = []
    for name in ("gspo", "gspo_token"):
        leaf = values.clone().requires_grad_()
        algorithm = choose(name, surrogate={"low": 0.2, "high": 0.2})
        loss, _ = policy_objective(algorithm, leaf, batch=batch, denominator=5)
        gradients.append(torch.autograd.grad(loss, leaf)[0])
    assert gradients[0].abs().max() > 0
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-7, rtol=1e-5)


def test_all_surrogates_are_reinforce_at_ratio_1(choose, rollouts):
    batch, _ = rollouts
    whole = int(batch.mask_BT.sum())
    gradients = {}
    for name in ("reinforce", "default", "cispo", "cispo_trl", "sapo", "grpo_verl", "gspo_token"):
        algorithm = choose(
            name,
            aggregation={"kind": "token_mean"},
            regularizers={"kl": None},
            old_policy="engine",
        )
        leaf = batch.sampled_logprobs_BT.clone().requires_grad_()
        loss, _ = policy_objective(algorithm, leaf, batch=batch, denominator=whole)
        gradients[name] = torch.autograd.grad(loss, leaf)[0]
    expected = torch.where(batch.mask_BT, -batch.advantages_BT / whole, 0.0)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected, atol=1e-7, rtol=1e-5, msg=name)


def test_the_interpolated_policy_lies_between_engine_and_current(choose, rollouts):
    batch, values = rollouts
    algorithm = choose(
        "default", old_policy="interpolated", token_weights={"importance": {"bound": "none"}}
    )
    found = []
    for position in (0.0, 1.0):
        moved = replace(batch, position_BT=position)
        _, metrics = policy_objective(algorithm, values, batch=moved, denominator=1)
        found.append((metrics["ratio_mean"].item(), metrics["weight_mean"].item()))
    ratio = (values - batch.sampled_logprobs_BT).exp()[batch.mask_BT].mean().item()
    assert found[0] == pytest.approx((ratio, 1.0))
    assert found[1] == pytest.approx((1.0, ratio))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("token_mean", 25),
        ("sequence_mean_token_mean", 5),
        ("sequence_mean_token_sum", 5),
        ("constant_length", 50),
    ],
)
def test_denominators(choose, rollouts, kind, expected):
    batch, _ = rollouts
    algorithm = choose("default", aggregation={"kind": kind})
    whole = denominator(algorithm, batch.mask_BT, max_tokens=10)
    assert (whole, type(whole)) == (expected, int)


def test_an_own_constant_goes_before_the_limit_of_generation(choose, rollouts):
    batch, _ = rollouts
    algorithm = choose("dr_grpo", aggregation={"length": 4})
    assert denominator(algorithm, batch.mask_BT, max_tokens=10) == 20
    with pytest.raises(ValueError, match="needs constant_length"):
        denominator(choose("dr_grpo"), batch.mask_BT)


def test_what_is_missing_is_named(choose, rollouts):
    batch, values = rollouts
    bare = replace(batch, reference_logprobs_BT=None)
    for changes, message in [
        ({"regularizers": {"kl": {"coefficient": 0.1}}}, "kl needs reference_logprobs_BT"),
        ({"old_policy": "recomputed"}, "recomputed needs old_logprobs_BT"),
        ({"old_policy": "interpolated"}, "interpolated needs position_BT"),
        (
            {"regularizers": {"entropy": {"coefficient": 0.1, "place": "loss"}}},
            "entropy in the loss needs entropy_BT",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            policy_objective(choose("default", **changes), values, batch=bare, denominator=1)
    with pytest.raises(ValueError, match="has no gradient, so a bonus"):
        policy_objective(
            choose("default", regularizers={"entropy": {"coefficient": 0.1, "place": "loss"}}),
            values.requires_grad_(),
            batch=batch,
            denominator=1,
            entropy_BT=torch.ones(5, 9),
        )
