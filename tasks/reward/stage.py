"""Train a Bradley-Terry reward model on pairs, and grade it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from torch import Tensor

from posttrain.data.pair_inputs import read_pair_inputs
from posttrain.data.rows import TokenBatch
from posttrain.data.schemas import PAIRS
from posttrain.data.tables import write_table
from posttrain.learning.maths.pairs import bradley_terry_loss
from posttrain.learning.models.load import Policy
from posttrain.learning.models.reward_head import RewardModel, save_reward_model, start_reward_model
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.pairwise import encode_pairs
from posttrain.learning.training.prepare import prepare_for_training
from posttrain.learning.training.supervised import train
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.reward.config import RewardConfig
from tasks.reward.heldout import grade

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def run(
    config: RewardConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Take or build pairs, train the head and the body on one split, grade them on the other."""
    reward_model = start_reward_model(
        inputs["policy"],
        parameterization=config.parameterization,
        scale=config.scale,
        device=context.device,
    )
    pairs = read_pair_inputs(
        inputs,
        builder=config.builder,
        pairs_per_problem=config.pairs_per_problem,
        max_pairs=config.max_pairs,
        heldout_fraction=config.heldout_fraction,
        seed=context.seed,
    )
    _refuse_too_few(pairs, inputs)

    curve = Curve(context)
    trainable = prepare_for_training(reward_model.model, config.learner, seed=context.seed)
    rows = encode_pairs(
        Policy(reward_model.model, reward_model.tokenizer),
        pairs.filter(split="train"),
        config=config,
        context=context,
        where="reward",
    )
    objective = rows.objective(
        partial(_pair_loss, reward_model, config.centering),
        lambda part, packed: rows.table(part, packed=packed).batch,
        config=config,
        seed=context.seed,
        loss_at=lambda changed: partial(_pair_loss, reward_model, changed.centering),
    )
    num_steps = train(
        trainable, objective, config=config, context=context, curve=curve, prefix=config.STAGE
    )
    trainable.merge()
    report = grade(reward_model, pairs.filter(split="heldout"))

    save_reward_model(reward_model, outputs["reward_model"])
    write_table(pairs, outputs["pairs"], PAIRS)
    curve.write(outputs["curve"])
    outputs["report"].write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    return {f"reward/{name}": float(report[name]) for name in ("accuracy", "auroc", "ece")} | {
        "reward/loss": curve.last("reward/loss", window=20),
        "reward/num_pairs": float(len(pairs)),
        "reward/num_steps": float(num_steps),
    }


def _pair_loss(
    reward_model: RewardModel,
    centering: float,
    model: "PreTrainedModel",
    batch: TokenBatch,
    denominator: float,
) -> tuple[Tensor, Mapping[str, Tensor]]:
    chosen_B, rejected_B = replace(reward_model, model=model).rewards(batch).chunk(2)
    facts = batch.pairs
    return bradley_terry_loss(
        chosen_B,
        rejected_B,
        denominator=denominator,
        centering=centering,
        weight_B=None if facts is None else facts.weight_B,
        label_prob_B=None if facts is None else facts.label_prob_B,
    )


def _refuse_too_few(pairs: pl.DataFrame, inputs: Mapping[str, Path]) -> None:
    usable = pairs["problem_id"].n_unique()
    if usable < 2 and "pairs" in inputs:
        raise UserError(
            f"{inputs['pairs']}: {usable or 'no'} problem has pairs that can be used, but training"
            " and held-out pairs need one each; take pairs of more prompts, or another builder"
        )
    if usable < 2:
        where = inputs["samples"]
        raise UserError(
            f"{where}: {usable or 'no'} problem has both a verified and a refuted sample, but "
            "training and held-out pairs need one each; draw more samples per problem, take "
            "problems of middling difficulty, or start from a stronger policy"
        )
