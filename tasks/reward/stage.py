"""Train a Bradley-Terry reward model on pairs of one problem's samples, and grade it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
from torch import Tensor

from posttrain.data.batching import Batches, plan_steps
from posttrain.data.pairs import PairBatch, build_pairs, pad_pairs
from posttrain.data.tables import read_table, write_table
from posttrain.data.templates import encode_completions, encode_prompts
from posttrain.errors import UserError
from posttrain.maths.reward_model import bradley_terry_loss
from posttrain.models.reward_head import (
    RewardModel,
    add_reward_head,
    save_reward_model,
    sequence_rewards,
)
from posttrain.pipeline.context import StageContext
from posttrain.records import COMPLETIONS, PAIRS
from posttrain.training.curve import Curve
from posttrain.training.supervised import Loss, train
from tasks.reward.config import RewardConfig
from tasks.reward.heldout import grade


def run(
    config: RewardConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Build pairs, train the head and the body on one split, grade them on the other."""
    samples = read_table(inputs["samples"], COMPLETIONS)
    reward_model = add_reward_head(inputs["policy"], device=context.device)
    pairs = build_pairs(
        samples,
        pairs_per_problem=config.pairs_per_problem,
        heldout_fraction=config.heldout_fraction,
        seed=context.seed,
    )
    _refuse_too_few(pairs, str(inputs["samples"]))

    curve = Curve(context)
    batches = _batches(reward_model, pairs.filter(split="train"), config, context)
    train(
        reward_model.model,
        batches,
        _pair_loss(config.centring),
        config=config,
        context=context,
        curve=curve,
        prefix="reward",
    )
    report = grade(reward_model, pairs.filter(split="heldout"))

    save_reward_model(reward_model, outputs["reward_model"])
    write_table(pairs, outputs["pairs"], PAIRS)
    curve.write(outputs["curve"])
    outputs["report"].write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    return {f"reward/{name}": float(report[name]) for name in ("accuracy", "auroc", "ece")} | {
        "reward/loss": curve.last("reward/loss", window=20),
        "reward/num_pairs": float(len(pairs)),
        "reward/num_steps": float(len(batches.steps)),
    }


def _pair_loss(centring: float) -> Loss[PairBatch]:
    def loss(
        model: object, batch: PairBatch, denominator: float
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        rewards = sequence_rewards(model, batch.input_ids_BT, batch.last_B)
        chosen_B, rejected_B = rewards.chunk(2)
        return bradley_terry_loss(chosen_B, rejected_B, denominator=denominator, centring=centring)

    return loss


def _batches(
    reward_model: RewardModel, pairs: pl.DataFrame, config: RewardConfig, context: StageContext
) -> Batches[PairBatch]:
    """Token ids of the pairs, and every step over those that fit."""
    prompts = encode_prompts(reward_model.tokenizer, pairs["prompt"].to_list())
    sides = [
        [
            p + t
            for p, t in zip(prompts, encode_completions(reward_model.tokenizer, texts), strict=True)
        ]
        for texts in (pairs["chosen"].to_list(), pairs["rejected"].to_list())
    ]
    kept = [pair for pair in zip(*sides, strict=True) if max(map(len, pair)) <= config.max_length]
    if not kept:
        raise UserError(f"reward: no pair fits into max_length {config.max_length}; raise it")
    if len(kept) < len(pairs):
        context.note(f"left out {len(pairs) - len(kept)} pairs over {config.max_length} tokens")
    # Both sides of a pair are padded to the longer one.
    lengths = [2 * max(map(len, pair)) for pair in kept]
    steps = plan_steps(
        lengths, batch_tokens=config.batch_tokens, epochs=config.epochs, seed=context.seed
    )

    def collate(part: Sequence[int]) -> PairBatch:
        chosen, rejected = zip(*(kept[index] for index in part), strict=True)
        return pad_pairs(chosen, rejected, pad=reward_model.pad)

    return Batches(steps, lengths, collate, config.micro_batch_tokens)


def _refuse_too_few(pairs: pl.DataFrame, where: str) -> None:
    if pairs["problem_id"].n_unique() < 2:
        raise UserError(
            f"{where}: only {pairs['problem_id'].n_unique()} problems have both a verified and a "
            "refuted sample, but training and held-out pairs need one each; "
            "draw more samples per problem, or problems of middling difficulty"
        )
