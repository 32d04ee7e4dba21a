"""Parity with TRL's own loss code, run on random inputs through stand-ins for its trainers.

TRL keeps its formulas inside methods of trainers. Each is called here as a plain function, with a
stand-in for `self` that holds the settings it reads, and a "model" that returns given logprobs.
"""

from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch

from posttrain.maths.advantages import group_relative
from posttrain.maths.correction import off_policy_keep
from posttrain.maths.divergence import divergence
from posttrain.maths.entropy import entropy_from_logits
from posttrain.maths.kl import kl_estimate, kl_loss
from posttrain.maths.kto import kto_loss, kto_reference_point
from posttrain.maths.length import overlong_penalty
from posttrain.maths.policy_loss import policy_loss
from posttrain.maths.preference import chosen_likelihood_loss, preference_loss
from posttrain.maths.ratios import log_ratio
from posttrain.maths.reduce import loss_denominator
from posttrain.maths.reference_free import orpo_loss, simpo_loss
from posttrain.maths.reward_model import bradley_terry_loss
from posttrain.maths.sequence_logprobs import desensitised_logprobs, sequence_logprobs
from posttrain.maths.surrogates import cispo, clipped, geometric_mean, soft_gated

trl = pytest.importorskip("trl", reason="TRL is not installed")
if not trl.__version__.startswith("1.16."):
    pytest.skip("written against the internals of TRL 1.16", allow_module_level=True)

LOW, HIGH = 0.2, 0.28
NUM_SEQUENCES, NUM_TOKENS = 6, 7


class LoneProcess:
    """What TRL asks of accelerate, in a world of one process."""

    num_processes = 1
    device = torch.device("cpu")

    def gather(self, tensor):
        return tensor

    gather_for_metrics = gather

    def reduce(self, tensor, reduction):
        return tensor


def stand_in(**settings):
    return SimpleNamespace(
        accelerator=LoneProcess(),
        model=SimpleNamespace(training=True),
        ref_model=None,
        _metrics=defaultdict(lambda: defaultdict(list)),
        _total_train_tokens=0,
        _tp_size=1,
        aux_loss_enabled=False,
        **settings,
    )


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(11)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator)

    old = -0.1 - 2 * uniform(NUM_SEQUENCES, NUM_TOKENS)
    lengths = torch.tensor([[7], [1], [4], [6], [2], [5]])
    return SimpleNamespace(
        old=old,
        new=old + 0.8 * (uniform(NUM_SEQUENCES, NUM_TOKENS) - 0.5),
        reference=old + 0.8 * (uniform(NUM_SEQUENCES, NUM_TOKENS) - 0.5),
        advantages=2 * uniform(NUM_SEQUENCES) - 1,
        mask=torch.arange(NUM_TOKENS) < lengths,
    )


def trl_policy_loss(trainer_class, batch, logprobs, **settings):
    """TRL's loss of the batch; `settings` are fields of its trainer, `args` of its config."""
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
        torch.zeros(NUM_SEQUENCES, NUM_TOKENS),
        None,
    )
    ids = torch.zeros(NUM_SEQUENCES, NUM_TOKENS, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": torch.ones(NUM_SEQUENCES, 1),
        "completion_ids": ids,
        "completion_mask": batch.mask.long(),
        "advantages": batch.advantages,
        "old_per_token_logps": batch.old,
        "old_logps": sequence_logprobs(batch.old, batch.mask),
        "ref_per_token_logps": batch.reference,
        "num_items_in_batch": batch.mask.sum(),
    }
    return trainer_class._compute_loss(trainer, None, inputs)


def assert_same_value_and_gradient(ours, theirs, batch):
    """Both map log-probabilities to a loss."""
    results = []
    for loss_of in (ours, theirs):
        logprobs = batch.new.clone().requires_grad_()
        loss = loss_of(logprobs)
        loss.backward()
        results.append((loss.detach(), logprobs.grad))
    torch.testing.assert_close(results[0][0], results[1][0], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(results[0][1], results[1][1], atol=1e-6, rtol=1e-5)


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
def test_clipped_losses(batch, loss_type, aggregation, their_level, our_level, dual):
    from trl import GRPOTrainer

    def ours(logprobs):
        ratio = log_ratio(logprobs, batch.old, mask_BT=batch.mask, level=our_level)
        surrogate = clipped(ratio, batch.advantages.unsqueeze(-1), low=LOW, high=HIGH, dual=dual)
        return our_policy_loss(batch, surrogate, aggregation)

    def theirs(logprobs):
        return trl_policy_loss(
            GRPOTrainer,
            batch,
            logprobs,
            loss_type=loss_type,
            importance_sampling_level=their_level,
            args={"delta": dual},
        )

    assert_same_value_and_gradient(ours, theirs, batch)


def test_cispo(batch):
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

    assert_same_value_and_gradient(
        ours,
        lambda logprobs: trl_policy_loss(
            GRPOTrainer, batch, logprobs, loss_type="cispo", epsilon_high=1.1
        ),
        batch,
    )


def test_sapo(batch):
    from trl import GRPOTrainer

    def ours(logprobs):
        ratio = log_ratio(logprobs, batch.old, mask_BT=batch.mask, level="token")
        surrogate = soft_gated(
            ratio, batch.advantages.unsqueeze(-1), positive_tau=1.0, negative_tau=1.05
        )
        return our_policy_loss(batch, surrogate, "sequence_mean_token_mean")

    assert_same_value_and_gradient(
        ours,
        lambda logprobs: trl_policy_loss(GRPOTrainer, batch, logprobs, loss_type="sapo"),
        batch,
    )


def test_gmpo(batch):
    from trl.experimental.gmpo import GMPOTrainer

    def ours(logprobs):
        ratio = log_ratio(logprobs, batch.old, mask_BT=batch.mask, level="token")
        surrogate = geometric_mean(
            ratio, batch.advantages.unsqueeze(-1), mask_BT=batch.mask, low=LOW, high=HIGH
        )
        return our_policy_loss(batch, surrogate, "sequence_mean_token_mean")

    assert_same_value_and_gradient(
        ours, lambda logprobs: trl_policy_loss(GMPOTrainer, batch, logprobs), batch
    )


def test_rloo_clips_the_ratio_of_whole_sequences(batch):
    from trl import RLOOTrainer

    def ours(logprobs):
        ratio = log_ratio(logprobs, batch.old, mask_BT=batch.mask, level="sequence_sum")
        surrogate = clipped(ratio, batch.advantages.unsqueeze(-1), low=LOW, high=HIGH)
        return our_policy_loss(batch, surrogate, "sequence_mean_token_mean")

    assert_same_value_and_gradient(
        ours, lambda logprobs: trl_policy_loss(RLOOTrainer, batch, logprobs), batch
    )


@pytest.mark.parametrize("ratio_weighted", [False, True])
def test_kl_in_the_loss(batch, ratio_weighted):
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
        return trl_policy_loss(
            GRPOTrainer,
            batch,
            logprobs,
            loss_type="dapo",
            beta=0.3,
            args={"use_bias_correction_kl": ratio_weighted},
        )

    assert_same_value_and_gradient(ours, theirs, batch)


def test_off_policy_mask(batch):
    from trl import GRPOTrainer

    advantages = batch.advantages.unsqueeze(-1)
    theirs = GRPOTrainer.get_off_policy_mask(
        advantages, batch.new, batch.old, batch.mask.float(), off_policy_threshold=0.02
    )
    ours = off_policy_keep(
        log_ratio(batch.new, batch.old, mask_BT=batch.mask, level="token"),
        advantages,
        mask_BT=batch.mask,
        threshold=0.02,
    )
    assert torch.equal(ours[:, :1].float(), theirs)
    assert 0 < theirs.sum() < NUM_SEQUENCES


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


def fake_outputs(logprobs):
    zeros = torch.zeros_like(logprobs)
    return SimpleNamespace(
        log_probs=logprobs, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool()
    )


def dpo_batch(batch):
    """Three pairs, chosen ones first; TRL's completion mask has one more place in front."""
    mask = torch.cat([torch.zeros(NUM_SEQUENCES, 1, dtype=torch.bool), batch.mask], 1)
    return {
        "input_ids": torch.zeros(NUM_SEQUENCES, NUM_TOKENS + 1, dtype=torch.long),
        "attention_mask": torch.ones(NUM_SEQUENCES, NUM_TOKENS + 1),
        "completion_mask": mask.long(),
    }


@pytest.mark.parametrize(
    ("their_loss", "our_loss", "per_token", "label_smoothing", "ld_alpha"),
    [
        ("sigmoid", "sigmoid", False, 0.0, None),
        ("sigmoid_norm", "sigmoid", True, 0.0, None),
        ("hinge", "hinge", False, 0.0, None),
        ("ipo", "ipo", True, 0.0, None),
        ("robust", "robust", False, 0.2, None),
        ("sigmoid", "sigmoid", False, 0.0, 0.3),
    ],
)
def test_dpo_family(batch, their_loss, our_loss, per_token, label_smoothing, ld_alpha):
    from trl import DPOTrainer

    shared = batch.mask.sum(-1).view(2, 3).amin(0).repeat(2)

    def sequence(logprobs):
        if ld_alpha is None:
            return sequence_logprobs(logprobs, batch.mask, per_token=per_token)
        return desensitised_logprobs(logprobs, batch.mask, shared_length_B=shared, alpha=ld_alpha)

    def ours(logprobs):
        chosen, rejected = (sequence(logprobs) - sequence(batch.reference)).chunk(2)
        return preference_loss(
            chosen,
            rejected,
            loss=our_loss,
            beta=0.4,
            denominator=3,
            label_smoothing=label_smoothing,
        )[0]

    def theirs(logprobs):
        trainer = stand_in(
            ld_alpha=ld_alpha,
            beta=0.4,
            label_smoothing=label_smoothing,
            loss_types=[their_loss],
            loss_weights=[1.0],
            precompute_ref_logps=True,
            f_divergence_type="reverse_kl",
            use_weighting=False,
        )
        inputs = dpo_batch(batch)
        # TRL divides by the length after it has taken the log-ratio of the sums.
        reference = (
            sequence_logprobs(batch.reference, batch.mask)
            if per_token
            else sequence(batch.reference)
        )
        inputs["ref_chosen_logps"], inputs["ref_rejected_logps"] = reference.chunk(2)
        model = lambda **_: fake_outputs(logprobs * batch.mask)  # noqa: E731
        return DPOTrainer._compute_loss(trainer, model, inputs, return_outputs=False)

    assert_same_value_and_gradient(ours, theirs, batch)


def test_sft_term_of_rpo(batch):
    from trl import DPOTrainer

    def ours(logprobs):
        chosen = sequence_logprobs(logprobs[:3], batch.mask[:3])
        return chosen_likelihood_loss(chosen, coefficient=0.7, denominator=batch.mask[:3].sum())[0]

    def theirs(logprobs):
        trainer = stand_in(
            ld_alpha=None,
            beta=0.4,
            loss_types=["sft"],
            loss_weights=[0.7],
            precompute_ref_logps=True,
            f_divergence_type="reverse_kl",
            use_weighting=False,
        )
        inputs = dpo_batch(batch)
        inputs["ref_chosen_logps"] = inputs["ref_rejected_logps"] = torch.zeros(3)
        model = lambda **_: fake_outputs(logprobs)  # noqa: E731
        return DPOTrainer._compute_loss(trainer, model, inputs, return_outputs=False)

    assert_same_value_and_gradient(ours, theirs, batch)


def test_kto(batch):
    from trl import KTOTrainer

    desirable = torch.tensor([True, False, False, True, True, False])
    mismatched, mismatched_reference = torch.tensor([1.0, 2.0, 0.3]), torch.tensor([0.5, 1.0, 0.9])
    reference = sequence_logprobs(batch.reference, batch.mask)

    def ours(logprobs):
        return kto_loss(
            sequence_logprobs(logprobs, batch.mask) - reference,
            desirable,
            reference_point=kto_reference_point(mismatched - mismatched_reference),
            beta=0.3,
            denominator=NUM_SEQUENCES,
            desirable_weight=1.2,
            undesirable_weight=0.7,
        )[0]

    def theirs(logprobs):
        trainer = stand_in(
            beta=0.3,
            loss_type="kto",
            calculate_KL=True,
            precompute_ref_logps=True,
            desirable_weight=1.2,
            undesirable_weight=0.7,
        )
        trainer._compute_kl_logps = lambda *_: mismatched
        inputs = dpo_batch(batch) | {
            "label": desirable,
            "ref_logps": reference,
            "ref_KL_logps": mismatched_reference,
        }
        model = lambda **_: fake_outputs(logprobs * batch.mask)  # noqa: E731
        return KTOTrainer._compute_loss(trainer, model, inputs, return_outputs=False)

    assert_same_value_and_gradient(ours, theirs, batch)


@pytest.mark.parametrize("margin", [None, torch.tensor([0.5, 0.0, -0.2])])
@pytest.mark.parametrize("centring", [None, 0.01])
def test_reward_model(margin, centring):
    from trl import RewardTrainer

    rewards = torch.randn(6, generator=torch.Generator().manual_seed(5))
    trainer = stand_in(args=SimpleNamespace(center_rewards_coefficient=centring))
    inputs = {"attention_mask": torch.ones(6, 2)}
    if margin is not None:
        inputs["margin"] = margin
    model = lambda **_: SimpleNamespace(logits=rewards.unsqueeze(-1))  # noqa: E731
    theirs = RewardTrainer.compute_loss(trainer, model, inputs)
    ours, metrics = bradley_terry_loss(
        *rewards.chunk(2), denominator=3, margin_B=margin, centring=centring or 0.0
    )
    torch.testing.assert_close(ours, theirs)
    assert metrics["accuracy"].item() == pytest.approx(trainer._metrics["train"]["accuracy"][0])
    assert metrics["margin"].item() == pytest.approx(trainer._metrics["train"]["margin"][0])


def test_simpo_and_orpo():
    from trl.experimental.cpo import CPOTrainer
    from trl.experimental.orpo import ORPOTrainer

    generator = torch.Generator().manual_seed(6)
    chosen, rejected = -2 * torch.rand(2, 5, generator=generator) - 0.01
    trainer = stand_in(beta=2.0, alpha=0.0, loss_type="simpo", simpo_gamma=0.5, label_smoothing=0.0)
    losses, *_ = CPOTrainer.cpo_loss(trainer, chosen, rejected)
    ours, _ = simpo_loss(chosen, rejected, beta=2.0, target_margin=0.5, denominator=5)
    torch.testing.assert_close(ours, losses.mean())

    losses, *_ = ORPOTrainer.odds_ratio_loss(stand_in(beta=0.1), chosen, rejected)
    ours, _ = orpo_loss(chosen, rejected, weight=0.1, denominator=5)
    torch.testing.assert_close(ours, -chosen.mean() - losses.mean())


@pytest.mark.parametrize(
    ("beta", "kind"), [(0.0, "forward_kl"), (1.0, "reverse_kl"), (0.5, "jensen_shannon")]
)
def test_distillation_divergences(beta, kind):
    from trl.experimental.gkd import GKDTrainer

    student, teacher = torch.randn(2, 2, 3, 11, generator=torch.Generator().manual_seed(7))
    theirs = GKDTrainer.generalized_jsd_loss(student, teacher, beta=beta, reduction="sum")
    torch.testing.assert_close(divergence(student, teacher, kind=kind).sum(), theirs)


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
