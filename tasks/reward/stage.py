"""Train a Bradley-Terry reward model on pairs of one problem's samples, and grade it."""

import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl
from torch import Tensor

from posttrain.data.batching import Batches, plan_steps
from posttrain.data.pairs import PairTable, build_pairs
from posttrain.data.rows import TokenBatch, encode_rows
from posttrain.data.tables import read_table, write_table
from posttrain.errors import UserError
from posttrain.maths.reward_model import bradley_terry_loss
from posttrain.models.reward_head import RewardModel, save_reward_model, start_reward_model
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
    reward_model = start_reward_model(
        inputs["policy"],
        parameterisation=config.parameterisation,
        scale=config.scale,
        device=context.device,
    )
    pairs = build_pairs(
        samples,
        pairs_per_problem=config.pairs_per_problem,
        heldout_fraction=config.heldout_fraction,
        seed=context.seed,
        max_pairs=config.max_pairs,
    )
    _refuse_too_few(pairs, str(inputs["samples"]))

    curve = Curve(context)
    batches = _batches(reward_model, pairs.filter(split="train"), config, context)
    train(
        reward_model.model,
        batches,
        _pair_loss(reward_model, config.centring),
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


def _pair_loss(reward_model: RewardModel, centring: float) -> Loss[TokenBatch]:
    def loss(
        _model: object, batch: TokenBatch, denominator: float
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        chosen_B, rejected_B = reward_model.rewards(batch).chunk(2)
        return bradley_terry_loss(chosen_B, rejected_B, denominator=denominator, centring=centring)

    return loss


def _batches(
    reward_model: RewardModel, pairs: pl.DataFrame, config: RewardConfig, context: StageContext
) -> Batches[TokenBatch]:
    """Token ids of the pairs, and every step over those that fit."""
    prompts = pairs["prompt"].to_list()
    chosen = encode_rows(reward_model.tokenizer, prompts, pairs["chosen"].to_list())
    rejected = encode_rows(reward_model.tokenizer, prompts, pairs["rejected"].to_list())
    longest = [
        max(len(one.ids), len(other.ids)) for one, other in zip(chosen, rejected, strict=True)
    ]
    kept = [index for index, length in enumerate(longest) if length <= config.max_length]
    if not kept:
        raise UserError(f"reward: no pair fits into max_length {config.max_length}; raise it")
    if len(kept) < len(pairs):
        context.note(f"left out {len(pairs) - len(kept)} pairs over {config.max_length} tokens")
    # Both sides of a pair are padded to the longer one.
    lengths = [2 * longest[index] for index in kept]
    steps = plan_steps(
        lengths,
        batch_tokens=config.batch_tokens,
        epochs=config.epochs,
        num_steps=config.steps,
        seed=context.seed,
    )
    table = PairTable(
        [chosen[index] for index in kept],
        [rejected[index] for index in kept],
        pad=int(reward_model.tokenizer.pad_token_id),
    )
    return Batches(steps, lengths, table.batch, config.micro_batch_tokens)


def _refuse_too_few(pairs: pl.DataFrame, where: str) -> None:
    usable = pairs["problem_id"].n_unique()
    if usable < 2:
        raise UserError(
            f"{where}: {usable or 'no'} problem has both a verified and a refuted sample, but "
            "training and held-out pairs need one each; draw more samples per problem, take "
            "problems of middling difficulty, or start from a stronger policy"
        )
