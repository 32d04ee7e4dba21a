"""How well a policy's implicit rewards order pairs that it was not trained on."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import torch

from posttrain.data.rows import TokenRow, TokenTable
from posttrain.learning.algorithms.identity import digest
from posttrain.learning.maths.kl import kl_estimate
from posttrain.learning.models.logprobs import batch_logprobs
from posttrain.learning.preference.config import PreferenceConfig, RoundSamplingConfig
from posttrain.learning.preference.frozen_policy import FrozenPolicy
from posttrain.learning.preference.reference import reference_values
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.limits import tokens_for
from posttrain.learning.training.pairwise import PairRows, accuracy_interval
from posttrain.stage.context import StageContext
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.models.load import Policy

_NUM_PROMPTS = 64


def report_of(
    policy: "Policy",
    initial: FrozenPolicy,
    rows: PairRows,
    pairs: pl.DataFrame,
    *,
    config: PreferenceConfig,
    context: StageContext,
) -> dict[str, Any]:
    """Measure a trained policy on held-out pairs and on fresh samples, and say what trained it.

    Args:
        policy: The policy after training.
        initial: The policy before.
        rows: Token ids of the held-out pairs.
        pairs: The pairs themselves.
        config: Of the stage.
        context: Of the stage: seed and scratch folder.

    Returns:
        What `grade` and `divergence` give, with the algorithm and its digest.

    """
    grades = grade(policy.model, initial, rows, pairs, config=config, scratch=context.scratch)
    seed = purpose_seed(context.seed, "divergence")
    limit = tokens_for(config.sampling.max_tokens, policy.model, note=context.note)
    return {
        **grades,
        **divergence(policy, initial, rows, config=config.sampling, limit=limit, seed=seed),
        "algorithm": config.algorithm.model_dump(mode="json"),
        "algorithm_digest": digest(config.algorithm),
    }


def keep_values(
    policy: "Policy",
    initial: FrozenPolicy,
    rows: PairRows,
    *,
    config: PreferenceConfig,
    scratch: Path,
) -> None:
    """Ask a policy before training what it says of held-out pairs, for the report after it.

    Args:
        policy: As it is before the first step.
        initial: The same, as the report will find it.
        rows: Token ids of the held-out pairs.
        config: Of the stage.
        scratch: Folder in which the values are kept.

    """
    present = replace(initial, reading=FrozenPolicy.of(policy.model).reading)
    reference_values(
        config.algorithm, present, rows, batch_tokens=config.batch_tokens, scratch=scratch
    )


def grade(
    model: "PreTrainedModel",
    reference: FrozenPolicy,
    rows: PairRows,
    pairs: pl.DataFrame,
    *,
    config: PreferenceConfig,
    scratch: Path,
) -> dict[str, Any]:
    """Measure accuracy and margin of ``beta x (log-ratio to the reference)`` on held-out pairs.

    A beta that is a schedule counts as it begins, so that reports have one scale.
    Also for losses without a reference: the log-ratio then says what training has changed.

    Args:
        model: The policy after training.
        reference: The policy before it.
        rows: Token ids of the held-out pairs.
        pairs: The pairs themselves; `rows.kept` are those that fit.
        config: The algorithm, and how many tokens a batch may have.
        scratch: Folder in which values of the reference are kept for a next attempt.

    Returns:
        Accuracy with its interval over problems, margin, both rewards and counts, for the report.
        Answers to two prompts have no right order: they are in no accuracy, and where there are no
        others there is none.

    """
    tokens = config.batch_tokens
    before_SN, after_SN = (
        reference_values(config.algorithm, each, rows, batch_tokens=tokens, scratch=scratch)
        for each in (reference, FrozenPolicy.of(model))
    )
    chosen_B, rejected_B = after_SN - before_SN
    beta = config.algorithm.at(0).beta
    kept = pairs[list(rows.kept)]
    return {
        **_accuracy(chosen_B - rejected_B, kept),
        "margin": beta * float((chosen_B - rejected_B).mean()),
        "chosen_reward": beta * float(chosen_B.mean()),
        "rejected_reward": beta * float(rejected_B.mean()),
        "num_heldout_pairs": len(kept),
        "num_heldout_problems": kept["problem_id"].n_unique(),
    }


def _accuracy(gap_B: torch.Tensor, pairs: pl.DataFrame) -> dict[str, float]:
    if "rejected_prompt" not in pairs.columns:
        return accuracy_interval(gap_B, pairs["problem_id"])
    comparable = pairs["prompt"] == pairs["rejected_prompt"]
    found: dict[str, float] = {"num_compared_pairs": int(comparable.sum())}
    if comparable.any():
        gaps = gap_B[torch.tensor(comparable.to_list())]
        found |= accuracy_interval(gaps, pairs.filter(comparable)["problem_id"])
    return found


@torch.no_grad()
def divergence(
    policy: "Policy",
    reference: FrozenPolicy,
    rows: PairRows,
    *,
    config: RoundSamplingConfig,
    limit: int,
    seed: int,
) -> dict[str, float]:
    """Measure KL(policy || reference) on fresh samples for held-out prompts, at temperature 1.

    Args:
        policy: The policy, which is sampled.
        reference: What it is compared with.
        rows: Pairs whose prompts are asked, each once.
        config: Engine of the samples.
        limit: Most tokens of a sample.
        seed: Of the samples.

    Returns:
        `kl`, the mean log-ratio summed over a completion (k1), and `kl_per_token`, the mean of k3,
        both in nats.

    """
    prompts = {row.ids[: row.start]: None for row in rows.sides[0]}
    asked = [Prompt(str(index), ids) for index, ids in enumerate(prompts)][:_NUM_PROMPTS]
    with open_engine(config.engine, policy, batch_size=config.batch_size) as engine:
        drawn = engine.sample(asked, SamplingParams(max_tokens=limit, seed=seed))
    joined = [
        TokenRow((*prompt.token_ids, *sample.token_ids), start=len(prompt.token_ids))
        for prompt, sample in zip(asked, drawn, strict=True)
    ]
    batch = TokenTable(joined, pad=rows.pad).batch(range(len(joined))).to(policy.model.device)
    new_BT, mask_BT = batch_logprobs(policy.model, batch)
    with reference.reading() as model:
        old_BT, _ = batch_logprobs(model, batch)
    per_token_BT = kl_estimate(new_BT, old_BT, estimator="k3")
    return {
        "kl": float((new_BT - old_BT)[mask_BT].sum() / len(joined)),
        "kl_per_token": float(per_token_BT[mask_BT].mean()),
    }
