"""Parity of the policy losses with TRL's own code, run on random inputs.

TRL keeps its formulas inside methods of trainers. Each is called here as a plain function, with a
stand-in for `self` that holds the settings it reads, and a "model" that returns given logprobs.
"""

import importlib.util
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import torch

from posttrain.learning.algorithms.batches import PolicyBatch
from posttrain.learning.algorithms.config import overlong_penalty
from posttrain.learning.algorithms.objective import policy_loss as weighted_loss
from posttrain.learning.algorithms.regularizers.base import BatchShare
from posttrain.learning.algorithms.surrogates.cispo import CispoSurrogate
from posttrain.learning.algorithms.surrogates.clip import ClipSurrogate
from posttrain.learning.algorithms.surrogates.gmpo import GmpoSurrogate
from posttrain.learning.algorithms.surrogates.sapo import SapoSurrogate
from posttrain.learning.algorithms.token_weights.drift import DriftWeight
from posttrain.learning.maths.entropy import entropy_from_logits
from posttrain.learning.maths.group_relative import group_relative
from posttrain.learning.maths.kl import kl_estimate, kl_loss
from posttrain.learning.maths.preference import sequence_logprobs
from posttrain.learning.maths.ratios import log_ratio
from posttrain.learning.maths.reduce import loss_denominator

# Imported where it is called: collecting tests, which every worker does, need not wait for it.
if importlib.util.find_spec("trl") is None or not version("trl").startswith("1.16."):
    pytest.skip("written against the internals of TRL 1.16", allow_module_level=True)

LOW, HIGH = 0.2, 0.28


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


def policy_loss(surrogate, mask, *, aggregation, denominator, weights_BT=None):
    return weighted_loss(surrogate, BatchShare(mask, aggregation, denominator), weights_BT)


@pytest.fixture
def trl_loss(batch, stand_in):
    """TRL's loss of the batch; settings are fields of its trainer, `args` of its config."""

    def loss_of(trainer_class, logprobs, **settings):
        args = {
            "delta": None,
            "use_bias_correction_kl": False,
            "sapo_temperature_pos": 1.0,
            "sapo_temperature_neg": 1.05,
            "steps_per_generation": 1,
        }
        args |= settings.pop("args", {})
        fields = {
            "args": SimpleNamespace(**args),
            "beta": 0.0,
            "epsilon_low": LOW,
            "epsilon_high": HIGH,
            "importance_sampling_level": "token",
            "top_entropy_quantile": 1.0,
            "off_policy_mask_threshold": None,
            "use_vllm": False,
            "max_completion_length": 50,
            "current_gradient_accumulation_steps": 1,
            "_entropy_bonus_enabled": False,
        }
        trainer = stand_in(**(fields | settings))
        trainer._get_per_token_logps_and_entropies = lambda *_, **__: (
            logprobs,
            torch.zeros(6, 7),
            None,
        )
        ids = torch.zeros(6, 7, dtype=torch.long)
        inputs = {
            "prompt_ids": ids[:, :1],
            "prompt_mask": torch.ones(6, 1),
            "completion_ids": ids,
            "completion_mask": batch.mask.long(),
            "advantages": batch.advantages,
            "old_per_token_logps": batch.old,
            "old_logps": sequence_logprobs(batch.old, batch.mask),
            "ref_per_token_logps": batch.reference,
            "num_items_in_batch": batch.mask.sum(),
        }
        return trainer_class._compute_loss(trainer, None, inputs)

    return loss_of


def our_policy_loss(batch, surrogate, aggregation, **options):
    denominator = loss_denominator(batch.mask, aggregation, constant_length=50)
    return policy_loss(
        surrogate, batch.mask, aggregation=aggregation, denominator=denominator, **options
    )[0]


@pytest.mark.parametrize(
    ("loss_type", "aggregation"),
    [
        ("grpo", "sequence_mean_token_mean"),
        ("bnpo", "token_mean"),
        ("dapo", "token_mean"),
        ("dr_grpo", "constant_length"),
        ("luspo", "sequence_mean_token_sum"),
    ],
)
@pytest.mark.parametrize(
    ("their_level", "our_level"), [("token", "token"), ("sequence", "sequence_mean")]
)
@pytest.mark.parametrize("dual", [None, 1.3])
def test_clipped_losses(
    batch, trl_loss, assert_parity, loss_type, aggregation, their_level, our_level, dual
):
    from trl import GRPOTrainer

    def ours(logprobs):
        ratio = log_ratio(logprobs, batch.old, mask_BT=batch.mask, level=our_level)
        surrogate = clipped(ratio, batch.advantages.unsqueeze(-1), low=LOW, high=HIGH, dual=dual)
        return our_policy_loss(batch, surrogate, aggregation)

    def theirs(logprobs):
        return trl_loss(
            GRPOTrainer,
            logprobs,
            loss_type=loss_type,
            importance_sampling_level=their_level,
            args={"delta": dual},
        )

    assert_parity(ours, theirs)


def test_cispo(batch, trl_loss, assert_parity):
    from trl import GRPOTrainer

    def ours(logprobs):
        surrogate = cispo(
            logprobs,
            batch.advantages.unsqueeze(-1),
            log_ratio_BT=log_ratio(logprobs, batch.old, mask_BT=batch.mask, level="token"),
            clip="cap",
            high=1.1,
        )
        return our_policy_loss(batch, surrogate, "token_mean")

    assert_parity(
        ours,
        lambda logprobs: trl_loss(GRPOTrainer, logprobs, loss_type="cispo", epsilon_high=1.1),
    )


def test_sapo(batch, trl_loss, assert_parity):
    from trl import GRPOTrainer

    def ours(logprobs):
        ratio = log_ratio(logprobs, batch.old, mask_BT=batch.mask, level="token")
        surrogate = soft_gated(
            ratio, batch.advantages.unsqueeze(-1), positive_tau=1.0, negative_tau=1.05
        )
        return our_policy_loss(batch, surrogate, "sequence_mean_token_mean")

    assert_parity(
        ours,
        lambda logprobs: trl_loss(GRPOTrainer, logprobs, loss_type="sapo"),
    )


def test_gmpo(batch, trl_loss, assert_parity):
    from trl.experimental.gmpo import GMPOTrainer

    def ours(logprobs):
        ratio = log_ratio(logprobs, batch.old, mask_BT=batch.mask, level="token")
        surrogate = geometric_mean(
            ratio, batch.advantages.unsqueeze(-1), mask_BT=batch.mask, low=LOW, high=HIGH
        )
        return our_policy_loss(batch, surrogate, "sequence_mean_token_mean")

    assert_parity(ours, lambda logprobs: trl_loss(GMPOTrainer, logprobs))


def test_rloo_clips_the_ratio_of_whole_sequences(batch, trl_loss, assert_parity):
    from trl import RLOOTrainer

    def ours(logprobs):
        ratio = log_ratio(logprobs, batch.old, mask_BT=batch.mask, level="sequence_sum")
        surrogate = clipped(ratio, batch.advantages.unsqueeze(-1), low=LOW, high=HIGH)
        return our_policy_loss(batch, surrogate, "sequence_mean_token_mean")

    assert_parity(ours, lambda logprobs: trl_loss(RLOOTrainer, logprobs))


@pytest.mark.parametrize("ratio_weighted", [False, True])
def test_kl_in_the_loss(batch, trl_loss, assert_parity, ratio_weighted):
    from trl import GRPOTrainer

    def ours(logprobs):
        ratio = log_ratio(logprobs, batch.old, mask_BT=batch.mask, level="token")
        surrogate = clipped(ratio, batch.advantages.unsqueeze(-1), low=LOW, high=HIGH)
        penalty, _ = kl_loss(
            kl_estimate(logprobs, batch.reference, estimator="k3"),
            batch.mask,
            coefficient=0.3,
            aggregation="token_mean",
            denominator=batch.mask.sum(),
            log_ratio_BT=ratio if ratio_weighted else None,
        )
        return our_policy_loss(batch, surrogate, "token_mean") + penalty

    def theirs(logprobs):
        return trl_loss(
            GRPOTrainer,
            logprobs,
            loss_type="dapo",
            beta=0.3,
            args={"use_bias_correction_kl": ratio_weighted},
        )

    assert_parity(ours, theirs)


def test_off_policy_mask(batch):
    from trl import GRPOTrainer

    advantages = batch.advantages.unsqueeze(-1)
    theirs = GRPOTrainer.get_off_policy_mask(
        advantages, batch.new, batch.old, batch.mask.float(), off_policy_threshold=0.02
    )
    known = PolicyBatch(mask_BT=batch.mask, advantages_BT=advantages, sampled_logprobs_BT=batch.old)
    ours = DriftWeight(threshold=0.02).of_update(batch.new, old_logprobs_BT=batch.old, batch=known)
    assert torch.equal(ours[:, :1].float(), theirs)
    assert 0 < theirs.sum() < 6


def test_group_advantages_with_unscorable_rollouts():
    from trl.trainer.utils import nanstd

    rewards = torch.rand(4, 5, generator=torch.Generator().manual_seed(0))
    rewards[1, 2] = rewards[3, 0] = float("nan")
    centred = rewards - rewards.nanmean(1, keepdim=True)
    theirs = torch.nan_to_num(centred / (nanstd(rewards, dim=1).unsqueeze(1) + 1e-4), nan=0.0)
    ours = group_relative(
        rewards.flatten(),
        torch.arange(4).repeat_interleave(5),
        baseline="mean",
        scale="sample",
        epsilon=1e-4,
        include_B=~rewards.flatten().isnan(),
    )
    torch.testing.assert_close(ours.view(4, 5), theirs)


def test_entropy_and_overlong_penalty():
    from trl.rewards import get_soft_overlong_punishment
    from trl.trainer.utils import entropy_from_logits as trl_entropy

    logits = 3 * torch.randn(2, 5, 301, generator=torch.Generator().manual_seed(8))
    torch.testing.assert_close(
        entropy_from_logits(logits, chunk_size=64), trl_entropy(logits), atol=1e-5, rtol=1e-5
    )
    lengths = [0, 80, 81, 90, 100, 120]
    theirs = get_soft_overlong_punishment(100, 20)([[1] * length for length in lengths])
    ours = overlong_penalty(torch.tensor(lengths), limit=100, buffer=20)
    assert ours.tolist() == pytest.approx(theirs)
