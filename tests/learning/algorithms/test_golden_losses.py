"""Golden values of the losses, from rewards to the number, each with the variant that it names.

They were obtained by running the frameworks' own functions on the same two sequences.
"""

from dataclasses import replace

import pytest
import torch

from posttrain.learning.algorithms.objective import denominator, policy_objective

# Rewards 2 and 0 less their mean: the advantages +1 and -1 of the golden values.
CENTRED = {"kind": "group", "baseline": "mean", "scale": "none"}
RATIO_02_028 = {"low": 0.2, "high": 0.28}
PLAIN = {
    "regularizers": {"kl": None},
    "overlong": None,
    "old_policy": "engine",
    "token_weights": {"importance": None},
}
BY_SEQUENCE = {"kind": "sequence_mean_token_mean"}
BY_TOKEN = {"kind": "token_mean"}

ON_POLICY_ENGINE = {
    "token mean": ("dapo", {}, -0.160260),
    "token mean, the default": ("default", {}, -0.160260),
    "sequence mean": ("grpo", {"surrogate": RATIO_02_028}, 0.045605),
    "sequence sum": (
        "default",
        {"aggregation": {"kind": "sequence_mean_token_sum"}},
        -0.400651,
    ),
    "constant length 3": ("dr_grpo", {"surrogate": RATIO_02_028}, -0.133550),
    "GSPO, verl and OpenRLHF": ("gspo", {"surrogate": RATIO_02_028}, 0.016392),
    "GSPO in its own range": ("gspo", {}, 0.016392),
    "GSPO-token": ("gspo_token", {"surrogate": RATIO_02_028}, 0.016392),
    "GSPO in AReaL": ("gspo", {"surrogate": RATIO_02_028, "aggregation": BY_TOKEN}, -0.180330),
    "CISPO two-sided": (
        "cispo",
        {"surrogate": {"bound": "two_sided", **RATIO_02_028}},
        0.264944,
    ),
    "CISPO upper, open-instruct": ("cispo_open_instruct", {"surrogate": {"high": 0.28}}, 0.249557),
    "CISPO cap, TRL": ("cispo_trl", {}, 0.236983),
    "SAPO": ("sapo", {}, -0.017591),
    "GMPO": ("gmpo", {"surrogate": {"log_low": 0.2, "log_high": 0.28}}, 0.042027),
}


@pytest.mark.parametrize(
    ("name", "changes", "expected"), ON_POLICY_ENGINE.values(), ids=ON_POLICY_ENGINE
)
def test_losses_against_the_old_policy(choose, fixture_f, batch_of, name, changes, expected):
    algorithm = choose(name, **(PLAIN | {"advantage": CENTRED} | changes))
    fixture_f.rollout = fixture_f.old
    batch = batch_of(algorithm, fixture_f)
    assert batch.advantages_BT.tolist() == [[1.0], [-1.0]]
    whole = denominator(algorithm, batch.mask_BT, max_tokens=3)
    loss, metrics = policy_objective(algorithm, fixture_f.new, batch=batch, denominator=whole)
    assert loss.item() == pytest.approx(expected, abs=1e-5)
    assert metrics["approx_kl"].item() == pytest.approx(0.02, abs=1e-6)
    if name in ("dapo", "default"):
        assert metrics["clip_fraction"].item() == pytest.approx(0.2)


RAW = {"bound": "none", "level": "token"}
CORRECTED = {
    "OpenRLHF, TIS clamped": (
        {"importance": {"bound": "clamp", "low": 0.9, "high": 1.1}},
        -0.145005,
    ),
    "OpenRLHF, IcePop": ({"importance": {"bound": "mask", "low": 0.9, "high": 1.1}}, -0.308627),
    "OpenRLHF, sequence mask": (
        {"importance": RAW, "band": {"level": "sequence_mean", "low": 0.9, "high": 1.1}},
        -0.131568,
    ),
    "decoupled PPO": ({"importance": RAW}, -0.131568),
}


@pytest.mark.parametrize(("weights", "expected"), CORRECTED.values(), ids=CORRECTED)
def test_losses_corrected_for_the_engine(choose, fixture_f, batch_of, weights, expected):
    algorithm = choose("default", old_policy="recomputed", token_weights=weights)
    batch = batch_of(algorithm, fixture_f)
    loss, metrics = policy_objective(algorithm, fixture_f.new, batch=batch, denominator=5)
    assert loss.item() == pytest.approx(expected, abs=1e-5)
    if weights.get("importance", {}).get("bound") == "mask":
        assert metrics["weight_zero_fraction"].item() == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        # min(w, 1.1) of 1.051271, .818731, 1, .904837, 1.105171
        ({"bound": "truncate", "high": 1.1}, [[1.051271, 0.818731, 1.0], [0.904837, 1.1]]),
        # The product over the tokens of each sequence: exp(-.15) and exp(0).
        (
            {"bound": "truncate", "level": "sequence_sum", "high": 1.1},
            [[0.860708, 0.860708, 0.860708], [1.0, 1.0]],
        ),
    ],
)
def test_truncated_weights_at_both_levels(choose, fixture_f, batch_of, weights, expected):
    plain = choose("reinforce", aggregation=BY_TOKEN, advantage={"baseline": "mean"})
    weighted = choose(
        "reinforce",
        aggregation=BY_TOKEN,
        advantage={"baseline": "mean"},
        old_policy="recomputed",
        token_weights={"importance": weights},
    )
    logprobs = fixture_f.new.clone().requires_grad_()
    gradients = []
    for algorithm in (plain, weighted):
        batch = batch_of(algorithm, fixture_f)
        loss, _ = policy_objective(algorithm, logprobs, batch=batch, denominator=5)
        gradients.append(torch.autograd.grad(loss, logprobs)[0])
    ratio = (gradients[1] / gradients[0])[fixture_f.mask]
    assert ratio.tolist() == pytest.approx([w for row in expected for w in row], abs=1e-5)


@pytest.mark.parametrize(
    ("estimator", "weighted", "expected"),
    [
        ("k2", False, (0.02 + 0.08 + 0.02 + 0.02 + 0.005) / 5),
        ("k3", False, (0.018731 + 0.091825 + 0.018731 + 0.021403 + 0.004837) / 5),
        # d x ratio, the ratios being exp of .1, -.3, .1, -.3 and .3.
        (
            "k1",
            True,
            (0.2 * 1.105171 - 0.4 * 0.740818 + 0.2 * 1.105171 - 0.2 * 0.740818 + 0.1 * 1.349859)
            / 5,
        ),
    ],
)
def test_divergence_in_the_loss(choose, fixture_f, batch_of, estimator, weighted, expected):
    fixture_f.rollout = fixture_f.old
    kl = {"coefficient": 2.0, "estimator": estimator, "ratio_weighted": weighted}
    with_kl, without = choose("default", regularizers={"kl": kl}), choose("default")
    batch = batch_of(with_kl, fixture_f)
    losses = [
        policy_objective(each, fixture_f.new, batch=batch, denominator=5)[0].item()
        for each in (with_kl, without)
    ]
    assert losses[0] - losses[1] == pytest.approx(2.0 * expected, abs=1e-5)


def test_dual_clip_bounds_the_loss_of_a_bad_token(choose, fixture_f, batch_of):
    # Of the bad sequence's ratios exp(-.3) and exp(.3) = 1.349859 the second one passes 1.3.
    fixture_f.rollout = fixture_f.old
    losses = []
    for dual in (None, 1.3):
        algorithm = choose("default", surrogate={"dual": dual})
        batch = batch_of(algorithm, fixture_f)
        losses.append(policy_objective(algorithm, fixture_f.new, batch=batch, denominator=5)[0])
    assert (losses[0] - losses[1]).item() == pytest.approx((1.349859 - 1.3) / 5, abs=1e-6)


def test_the_drift_filter_drops_bad_rollouts_that_the_policy_has_left(choose, fixture_f, batch_of):
    # Mean fall of the bad sequence since sampling: (.4 - .4) / 2 = 0; moved, (.4 + .2) / 2 = .3.
    algorithm = choose("default", token_weights={"drift": {"threshold": 0.25}})
    kept = batch_of(algorithm, fixture_f)
    _, metrics = policy_objective(algorithm, fixture_f.new, batch=kept, denominator=5)
    assert metrics["weight_zero_fraction"].item() == 0.0
    left = replace(kept, sampled_logprobs_BT=fixture_f.rollout + torch.tensor([[0.0], [0.3]]))
    _, metrics = policy_objective(algorithm, fixture_f.new, batch=left, denominator=5)
    assert metrics["weight_zero_fraction"].item() == pytest.approx(2 / 5)
