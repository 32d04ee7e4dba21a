"""The presets that bear TRL's name, against TRL's own loss, advantages and defaults, run live.

TRL keeps its formulas inside methods of trainers. Each is called here as a plain function, with a
stand-in for `self` that holds the settings it reads, and a "model" that returns given logprobs.
"""

import dataclasses
import importlib.util
from collections import defaultdict
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import torch

from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch
from posttrain.learning.algorithms.credit_assignment import advantages
from posttrain.learning.algorithms.objective import denominator, policy_objective

# Imported where it is called: collecting tests, which every worker does, need not wait for it.
if importlib.util.find_spec("trl") is None or not version("trl").startswith("1.16."):
    pytest.skip("written against the internals of TRL 1.16", allow_module_level=True)

LIMIT = 11


class LoneProcess:
    """What TRL asks of accelerate, in a world of one process."""

    num_processes = 1
    device = torch.device("cpu")

    def gather(self, tensor):
        return tensor

    gather_for_metrics = gather

    def reduce(self, tensor, reduction):
        return tensor


def defaults(config_class):
    """TRL's defaults by name, as its dataclass states them."""
    return {
        field.name: field.default
        for field in dataclasses.fields(config_class)
        if field.default is not dataclasses.MISSING
    }


@pytest.fixture
def data():
    """Six rollouts of two problems, and the rewards of a verifier that is not shy of fractions."""
    generator = torch.Generator().manual_seed(20)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator)

    old = -0.1 - 2 * uniform(6, 7)
    lengths = torch.tensor([[7], [1], [4], [6], [2], [5]])
    return SimpleNamespace(
        old=old,
        new=old + 1.2 * (uniform(6, 7) - 0.5),
        rollout=old + 0.2 * (uniform(6, 7) - 0.5),
        reference=old + 0.8 * (uniform(6, 7) - 0.5),
        mask=torch.arange(7) < lengths,
        rewards=uniform(6),
    )


def trl_advantages(data):
    """As `GRPOTrainer` scales by groups: its deviation and its epsilon."""
    from trl.trainer.utils import nanstd

    rewards = data.rewards.view(2, 3)
    centred = rewards - rewards.nanmean(1, keepdim=True)
    return (centred / (nanstd(rewards, dim=1)[:, None] + 1e-4)).flatten()


def trl_loss(trainer_class, config_class, data, logprobs, **settings):
    """TRL's loss under the defaults of its config, but for `settings`."""
    import trl

    args = defaults(config_class) | settings
    epsilon_high = args["epsilon_high"] or args["epsilon"]
    trainer = SimpleNamespace(
        accelerator=LoneProcess(),
        model=SimpleNamespace(training=True),
        ref_model=None,
        aux_loss_enabled=False,
        args=SimpleNamespace(**args | {"steps_per_generation": 1}),
        beta=args["beta"],
        epsilon_low=args["epsilon"],
        epsilon_high=epsilon_high,
        loss_type=args.get("loss_type"),
        importance_sampling_level=args.get("importance_sampling_level"),
        top_entropy_quantile=args.get("top_entropy_quantile"),
        off_policy_mask_threshold=args.get("off_policy_mask_threshold"),
        get_off_policy_mask=trl.GRPOTrainer.get_off_policy_mask,
        use_vllm=settings.get("use_vllm", False),
        vllm_importance_sampling_correction=args.get("vllm_importance_sampling_correction"),
        max_completion_length=LIMIT,
        current_gradient_accumulation_steps=1,
        _entropy_bonus_enabled=False,
        _metrics=defaultdict(lambda: defaultdict(list)),
        _total_train_tokens=0,
        _tp_size=1,
        _get_per_token_logps_and_entropies=lambda *_, **__: (logprobs, torch.zeros(6, 7), None),
    )
    ids = torch.zeros(6, 7, dtype=torch.long)
    old_sum = (data.old * data.mask).sum(-1)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": torch.ones(6, 1),
        "completion_ids": ids,
        "completion_mask": data.mask.long(),
        "advantages": settings.get("advantages", trl_advantages(data)),
        "old_per_token_logps": data.old,
        "old_logps": old_sum,
        "ref_per_token_logps": data.reference,
        "sampling_per_token_logps": data.rollout,
        "importance_sampling_ratio": settings.get("importance_sampling_ratio"),
        "num_items_in_batch": data.mask.sum(),
    }
    return trainer_class._compute_loss(trainer, None, inputs)


def our_loss(algorithm, data, logprobs):
    """Ours, from the rewards on."""
    outcomes = RolloutBatch(
        rewards_B=data.rewards,
        group_B=torch.tensor([0, 0, 0, 1, 1, 1]),
        mask_BT=data.mask,
        sampled_logprobs_BT=data.old,
        reference_logprobs_BT=data.reference,
    )
    batch = PolicyBatch(
        mask_BT=data.mask,
        advantages_BT=advantages(algorithm, outcomes).advantages_BT,
        sampled_logprobs_BT=data.rollout,
        old_logprobs_BT=data.old,
        reference_logprobs_BT=data.reference,
    )
    whole = denominator(algorithm, data.mask, max_tokens=LIMIT)
    return policy_objective(algorithm, logprobs, batch=batch, denominator=whole)[0]


def assert_parity(data, ours, theirs):
    results = []
    for loss_of in (ours, theirs):
        leaf = data.new.clone().requires_grad_()
        loss = loss_of(leaf)
        loss.backward()
        results.append((loss.detach(), leaf.grad))
    torch.testing.assert_close(results[0][0], results[1][0], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(results[0][1], results[1][1], atol=1e-6, rtol=1e-5)


STANDARD = {"kind": "group", "scale": "sample", "epsilon": 1e-4}
AS_TRL = {"advantage": STANDARD, "old_policy": "recomputed", "token_weights": {"importance": None}}
VARIANTS = {
    "as it is": ("grpo_trl", {}, {}),
    "cispo": ("cispo_trl", {}, {"loss_type": "cispo", "epsilon_high": 5.0}),
    "the paper's": (
        "grpo",
        AS_TRL,
        {"loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": False},
    ),
    "with a divergence": (
        "grpo_trl",
        {"regularizers": {"kl": {"coefficient": 0.3, "estimator": "k3", "ratio_weighted": True}}},
        {"beta": 0.3},
    ),
    "dapo": (
        "dapo",
        AS_TRL | {"overlong": None, "advantage": STANDARD | {"truncated": "keep"}},
        {"epsilon_high": 0.28},
    ),
    "dr_grpo, but for its scale": ("dr_grpo", AS_TRL, {"loss_type": "dr_grpo"}),
    "gspo": (
        "gspo",
        AS_TRL,
        {
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon": 3e-4,
            "epsilon_high": 4e-4,
        },
    ),
    "sapo": ("sapo", AS_TRL, {"loss_type": "sapo"}),
    "two-sided": ("grpo_trl", {"surrogate": {"dual": 1.4}}, {"delta": 1.4}),
    "off-policy sequences masked": (
        "grpo_trl",
        {"token_weights": {"drift": {"threshold": 0.05}}},
        {"off_policy_mask_threshold": 0.05},
    ),
}


@pytest.mark.parametrize(("name", "changes", "settings"), VARIANTS.values(), ids=VARIANTS)
def test_the_loss(choose, data, name, changes, settings):
    import trl

    algorithm = choose(name, **changes)
    assert_parity(
        data,
        lambda logprobs: our_loss(algorithm, data, logprobs),
        lambda logprobs: trl_loss(trl.GRPOTrainer, trl.GRPOConfig, data, logprobs, **settings),
    )


def test_the_mask_of_off_policy_sequences_is_not_idle_there(choose, data):
    masked, plain = (
        our_loss(choose("grpo_trl", token_weights={"drift": drift}), data, data.new)
        for drift in ({"threshold": 0.05}, None)
    )
    assert masked != plain


def test_the_correction_for_vllm_that_the_note_names(choose, data):
    import trl

    weights = {"bound": "mask", "level": "sequence_sum", "low": 0.0, "high": 1.05}
    algorithm = choose("grpo_trl", token_weights={"importance": weights})
    product = ((data.old - data.rollout) * data.mask).sum(-1, keepdim=True).exp()
    ratio = product.masked_fill(product > 1.05, 0.0)
    assert 0 < (ratio == 0).sum() < 6
    assert_parity(
        data,
        lambda logprobs: our_loss(algorithm, data, logprobs),
        lambda logprobs: trl_loss(
            trl.GRPOTrainer,
            trl.GRPOConfig,
            data,
            logprobs,
            use_vllm=True,
            importance_sampling_ratio=ratio,
        ),
    )


def test_rloo(choose, data):
    import trl

    # TRL takes the divergence off the rewards and compares with the mean of the others.
    divergence = ((data.old - data.reference) * data.mask).sum(-1)
    paid = (data.rewards - 0.05 * divergence).view(2, 3)
    others = (paid.sum(1, keepdim=True) - paid) / 2
    algorithm = choose("rloo_trl")
    assert_parity(
        data,
        lambda logprobs: our_loss(algorithm, data, logprobs),
        lambda logprobs: trl_loss(
            trl.RLOOTrainer,
            trl.RLOOConfig,
            data,
            logprobs,
            advantages=(paid - others).flatten(),
        ),
    )


def test_the_presets_state_trls_defaults(choose):
    import trl

    told = defaults(trl.GRPOConfig)
    expected = {
        "beta": 0.0,
        "epsilon": 0.2,
        "epsilon_high": None,
        "delta": None,
        "loss_type": "dapo",
        "scale_rewards": "group",
        "importance_sampling_level": "token",
        "mask_truncated_completions": False,
        "top_entropy_quantile": 1.0,
        "entropy_coef": 0.0,
        "off_policy_mask_threshold": None,
        "use_vllm": False,
        "vllm_importance_sampling_mode": "sequence_mask",
        "vllm_importance_sampling_clip_max": 3.0,
        "use_bias_correction_kl": True,
    }
    assert {name: told[name] for name in expected} == expected
    grpo = choose("grpo_trl")
    assert (grpo.regularizers, grpo.surrogate.low, grpo.surrogate.high) == ({}, 0.2, 0.2)
    assert grpo.surrogate.level == "token"
    assert (grpo.aggregation.kind, grpo.advantage.scale) == ("token_mean", "sample")

    told = defaults(trl.RLOOConfig)
    expected = {
        "beta": 0.05,
        "epsilon": 0.2,
        "epsilon_high": None,
        "normalize_advantages": False,
        "reward_clip_range": None,
        "mask_truncated_completions": False,
    }
    assert {name: told[name] for name in expected} == expected
    rloo = choose("rloo_trl")
    assert (rloo.regularizers["kl"].coefficient, rloo.surrogate.low, rloo.surrogate.high) == (
        0.05,
        0.2,
        0.2,
    )
