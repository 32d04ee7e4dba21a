"""Parity of the preference, reward and distillation losses with TRL's own code."""

import importlib.util
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import torch

from posttrain.learning.maths.divergence import divergence
from posttrain.learning.maths.pairs import bradley_terry_loss
from posttrain.learning.maths.preference import (
    chosen_likelihood_loss,
    desensitized_logprobs,
    kto_loss,
    kto_reference_point,
    orpo_loss,
    preference_loss,
    sequence_logprobs,
    simpo_loss,
)

# Imported where it is called: collecting tests, which every worker does, need not wait for it.
if importlib.util.find_spec("trl") is None or not version("trl").startswith("1.16."):
    pytest.skip("written against the internals of TRL 1.16", allow_module_level=True)


def fake_outputs(logprobs):
    zeros = torch.zeros_like(logprobs)
    return SimpleNamespace(
        log_probs=logprobs, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool()
    )


def dpo_batch(batch):
    """Three pairs, chosen ones first; TRL's completion mask has one more place in front."""
    mask = torch.cat([torch.zeros(6, 1, dtype=torch.bool), batch.mask], 1)
    return {
        "input_ids": torch.zeros(6, 7 + 1, dtype=torch.long),
        "attention_mask": torch.ones(6, 7 + 1),
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
def test_dpo_family(
    batch, their_loss, our_loss, per_token, label_smoothing, ld_alpha, stand_in, assert_parity
):
    from trl import DPOTrainer

    shared = batch.mask.sum(-1).view(2, 3).amin(0).repeat(2)

    def sequence(logprobs):
        if ld_alpha is None:
            return sequence_logprobs(logprobs, batch.mask, per_token=per_token)
        return desensitized_logprobs(logprobs, batch.mask, shared_length_B=shared, alpha=ld_alpha)

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

    assert_parity(ours, theirs)


def test_sft_term_of_rpo(batch, stand_in, assert_parity):
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

    assert_parity(ours, theirs)


def test_kto(batch, stand_in, assert_parity):
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
            denominator=6,
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

    assert_parity(ours, theirs)


@pytest.mark.parametrize("centering", [None, 0.01])
def test_reward_model(centering, stand_in):
    from trl import RewardTrainer

    rewards = torch.randn(6, generator=torch.Generator().manual_seed(5))
    trainer = stand_in(args=SimpleNamespace(center_rewards_coefficient=centering))
    inputs = {"attention_mask": torch.ones(6, 2)}
    model = lambda **_: SimpleNamespace(logits=rewards.unsqueeze(-1))  # noqa: E731
    theirs = RewardTrainer.compute_loss(trainer, model, inputs)
    ours, metrics = bradley_terry_loss(*rewards.chunk(2), denominator=3, centering=centering or 0.0)
    torch.testing.assert_close(ours, theirs)
    assert metrics["accuracy"].item() == pytest.approx(trainer._metrics["train"]["accuracy"][0])
    assert metrics["margin"].item() == pytest.approx(trainer._metrics["train"]["margin"][0])


def test_simpo_and_orpo(stand_in):
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
