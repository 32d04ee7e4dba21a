"""What a model of pairs reads: how they become rows, what it loses, how it is graded and saved."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
from torch import Tensor

from posttrain.data.rows import TokenBatch
from posttrain.learning.maths.pairs import bradley_terry_loss
from posttrain.learning.models.load import Policy
from posttrain.learning.models.pair_model import PairModel, facing, save_pair_model
from posttrain.learning.models.reward_head import RewardModel, save_reward_model
from posttrain.learning.preference.lone_answers import encode_opposed
from posttrain.learning.training.pairwise import PairRows, encode_pairs
from tasks.reward.heldout import grade, grade_pair_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class PairReading:
    """Of one way to read pairs: their rows, the report on held-out ones, and what is written."""

    encode: Callable[..., PairRows]
    grade: Callable[[RewardModel, pl.DataFrame], dict[str, Any]]
    save: Callable[[RewardModel, Path], None]


def _encode_both(policy: Policy, pairs: pl.DataFrame, **options: Any) -> PairRows:
    return encode_opposed(policy, facing(pairs), **options)


def _grade_both(reward_model: RewardModel, pairs: pl.DataFrame) -> dict[str, Any]:
    return grade_pair_model(PairModel(reward_model), pairs)


def _save_both(reward_model: RewardModel, path: Path) -> None:
    save_pair_model(PairModel(reward_model), path)


READINGS: Mapping[Literal["answer", "both"], PairReading] = {
    "answer": PairReading(encode_pairs, grade, save_reward_model),
    "both": PairReading(_encode_both, _grade_both, _save_both),
}
"""By `reward.reads`."""


def pair_loss(
    reward_model: RewardModel,
    centering: float,
    model: "PreTrainedModel",
    batch: TokenBatch,
    denominator: float,
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Compute Bradley and Terry's loss of the pairs of a micro-batch.

    Args:
        reward_model: How rewards are read off a model.
        centering: See `bradley_terry_loss`.
        model: The weights in training.
        batch: Chosen rows, then rejected ones.
        denominator: See `bradley_terry_loss`.

    Returns:
        The loss, and its metrics.

    """
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
