"""One training on one table of pairs: rows, reference values, batches, steps."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import polars as pl
import torch
from torch import Tensor

from posttrain.data.pair_facts import PairFacts
from posttrain.learning.preference.config import PreferenceConfig
from posttrain.learning.preference.frozen_policy import FrozenPolicy
from posttrain.learning.preference.lone_answers import encode_opposed
from posttrain.learning.preference.objective import (
    PreferenceBatch,
    batch_loss,
    with_reference_point,
)
from posttrain.learning.preference.own_samples import own_sampling
from posttrain.learning.preference.reference import reference_values
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.pairwise import PairRows
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.supervised import train
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of

if TYPE_CHECKING:
    from posttrain.learning.models.load import Policy


class PairReference(NamedTuple):
    """What log-ratios are taken to: a policy, or a geometric mixture of two."""

    policy: FrozenPolicy
    """It may be the one that learns, as it is read before the first step, unless the algorithm
    draws samples of its own at every step."""
    anchor: FrozenPolicy | None = None
    """The other one."""
    share: float = 0.0
    """Of the other one."""


def learn(
    trainable: Trainable,
    policy: "Policy",
    pairs: pl.DataFrame,
    *,
    reference: PairReference,
    config: PreferenceConfig,
    context: StageContext,
    curve: Curve,
) -> int:
    """Train on preference pairs.

    Args:
        trainable: The policy's model, ready for training.
        policy: Model and tokenizer.
        pairs: PAIRS, or what `opposed` makes of them.
        reference: What log-ratios are taken to.
        config: Algorithm, optimization and limits.
        context: Of the stage: seed, scratch folder, notes.
        curve: Takes the metrics of every step.

    Returns:
        The steps made.

    """
    algorithm = config.algorithm
    if algorithm.needs_mismatched:
        pairs = mismatched(pairs)
    extra = next((name for name in ("mismatched", "sampled") if name in pairs.columns), None)
    rows = encode_opposed(
        policy,
        pairs,
        config=config,
        context=context,
        where=config.STAGE,
        extra=extra,
        turns=config.turns,
    )
    if rows.facts and not algorithm.takes_label_probs:
        _refuse_soft_labels(rows.facts, config)
    values_SN = torch.zeros(len(rows.sides), len(rows.kept))
    if algorithm.needs_reference:
        says = partial(
            reference_values,
            algorithm,
            rows=rows,
            batch_tokens=config.batch_tokens,
            scratch=context.scratch,
        )
        values_SN = says(policy=reference.policy)
        if reference.anchor is not None:
            # A geometric mixture, but for what is the same of both sides of a pair.
            values_SN = values_SN.lerp(says(policy=reference.anchor), reference.share)
    objective = rows.objective(
        batch_loss(algorithm),
        partial(_collate, rows, values_SN),
        config=config,
        seed=context.seed,
        digests={"reference": sha256_of(values_SN.numpy().tobytes())},
        loss_at=lambda changed: batch_loss(changed.algorithm),
    )
    objective = replace(objective, routed=PreferenceBatch.routed)
    if algorithm.needs_mismatched:
        gather = with_reference_point(algorithm)
        objective = replace(objective, gather=gather, gather_heldout=gather)
    with ExitStack() as stack:
        if algorithm.draws_own:
            drawing = own_sampling(
                policy, reference.policy, pad=rows.pad, config=config, context=context
            )
            objective = replace(objective, gather=stack.enter_context(drawing))
        return train(
            trainable, objective, config=config, context=context, curve=curve, prefix=config.STAGE
        )


def _collate(
    rows: PairRows, values_SN: Tensor, chosen: Sequence[int], packed: bool
) -> Callable[[Sequence[int]], PreferenceBatch]:
    """Batches over the pairs of these indices, counted from 0."""
    values_SN = values_SN[:, list(chosen)]
    pairs = rows.table(chosen, sides=(0, 1), packed=packed)
    further = rows.table(chosen, sides=(2,), packed=packed) if len(rows.sides) > 2 else None

    def collate(part: Sequence[int]) -> PreferenceBatch:
        values_SB = values_SN[:, list(part)]
        tokens = pairs.batch(part)
        return PreferenceBatch(
            tokens=tokens,
            reference_2B=values_SB[:2].flatten(),
            extra=further.batch(part) if further else None,
            extra_reference_B=values_SB[2] if further else torch.zeros(len(part)),
            reference_point=torch.zeros(()),
            num_units=tokens.num_units,
        )

    return collate


def _refuse_soft_labels(facts: PairFacts, config: PreferenceConfig) -> None:
    """Refuse probabilities that the loss would pass over in silence."""
    unsure_B = facts.label_prob_B[facts.label_prob_B != 1]
    if len(unsure_B):
        beside = " with sft_coefficient" * bool(config.algorithm.sft_coefficient)
        raise UserError(
            f"{config.STAGE}: there are pairs with label_prob {unsure_B[0]:g}, but the loss"
            f" {config.algorithm.loss_name}{beside} has one side alone; take sigmoid, robust or ipo"
            " without sft_coefficient, or set label_prob to 1.0 in all pairs"
        )


def mismatched(pairs: pl.DataFrame) -> pl.DataFrame:
    """Give each prompt a completion of the pair half a table away: another problem's, as a rule.

    Chosen and rejected ones in turn: KTO's reference point is over completions of both kinds (arXiv
    2402.01306; TRL shifts all of a batch by one).

    Args:
        pairs: PAIRS.

    Returns:
        The same with a column ``mismatched``.

    """
    half = max(1, len(pairs) // 2)
    away = pl.concat([pairs[half:], pairs[:half]])
    in_turn = pl.when(pl.int_range(pl.len()) % 2 == 0).then("chosen").otherwise("rejected")
    return pairs.with_columns(away.select(mismatched=in_turn))
