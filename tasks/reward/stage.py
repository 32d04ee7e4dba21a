"""Train a reward model, or a preference model of both answers, on pairs, and grade it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from posttrain.data.pair_inputs import read_pair_inputs
from posttrain.data.rows import TokenBatch
from posttrain.data.schemas import PAIRS
from posttrain.data.tables import write_table
from posttrain.learning.models.load import Policy
from posttrain.learning.models.reward_head import start_reward_model
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.prepare import prepare_for_training
from posttrain.learning.training.supervised import train
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.reward.config import RewardConfig
from tasks.reward.readings import READINGS, pair_loss


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
        as_stored=config.learner.holds_base,
        processes=context.processes if config.learner.reads_by_rows else 1,
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
    reading = READINGS[config.reads]
    rows = reading.encode(
        Policy(reward_model.model, reward_model.tokenizer),
        pairs.filter(split="train"),
        config=config,
        context=context,
        where="reward",
    )
    objective = rows.objective(
        partial(pair_loss, reward_model, config.centering),
        lambda part, packed: rows.table(part, packed=packed).batch,
        config=config,
        seed=context.seed,
        loss_at=lambda changed: partial(pair_loss, reward_model, changed.centering),
    )
    objective = replace(objective, routed=TokenBatch.routed)
    num_steps = train(
        trainable, objective, config=config, context=context, curve=curve, prefix=config.STAGE
    )
    trainable.merge()
    report = reading.grade(reward_model, pairs.filter(split="heldout"))

    reading.save(reward_model, outputs["reward_model"])
    write_table(pairs, outputs["pairs"], PAIRS)
    curve.write(outputs["curve"])
    outputs["report"].write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    measured = [name for name in ("accuracy", "auroc", "ece") if name in report]
    return {f"reward/{name}": float(report[name]) for name in measured} | {
        "reward/loss": curve.last("reward/loss", window=20),
        "reward/num_pairs": float(len(pairs)),
        "reward/num_steps": float(num_steps),
    }


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
