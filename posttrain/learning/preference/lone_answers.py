"""Answers that were judged alone, set against each other for a loss that looks at each by itself.

KTO's loss is a mean over good and bad answers, whatever they answer (Ethayarajh et al. 2024), so
that a good one and a bad one make a pair of rows whichever prompts they have.
"""

from typing import TYPE_CHECKING, Any

import polars as pl

from posttrain.data.pair_facts import PairFacts
from posttrain.learning.preference.step_pairs import encode_steps
from posttrain.learning.training.pairwise import PairRows, encode_pairs
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.learning.algorithms.preference import PreferenceAlgorithm
    from posttrain.learning.models.load import Policy

TAKES_LONE_ANSWERS = frozenset({"kto"})
"""Losses in which each answer enters by itself, so that good and bad ones need not share prompts.
Here and not in their records, which are in the keys of stages that learn from no pairs."""
# A pair of two samples has both as parents, and one of them may well be empty.
_ALONE = ((pl.col("chosen") == "") | (pl.col("rejected") == "")) & (
    pl.col("parents").list.len() < 2  # noqa: PLR2004 - two samples make a pair
)
_OTHER = {"rejected_prompt": "prompt", "rejected_context": "context"}
"""Columns of a rejected answer to another prompt, and what they stand for."""


def count_lone(pairs: pl.DataFrame) -> int:
    """Count the answers that were judged alone.

    Args:
        pairs: PAIRS.

    Returns:
        Rows of which one side is empty.

    """
    return pairs.filter(_ALONE).height


def opposed(pairs: pl.DataFrame, algorithm: "PreferenceAlgorithm", *, where: str) -> pl.DataFrame:
    """Set good answers that were judged alone against bad ones, within each side of the split.

    The rarer label's answers are taken again from their beginning, so that both labels weigh the
    same, as the paper advises for unbalanced data.

    Args:
        pairs: PAIRS, of which some or all may have one side alone.
        algorithm: Says whether its loss looks at each answer by itself.
        where: Section of the recipe, for errors.

    Returns:
        Pairs with both sides; `rejected_prompt` and `rejected_context` say to what the rejected
        answer was given, where there are answers that were judged alone. Without any, `pairs`.

    Raises:
        UserError: The loss compares answers to one prompt, or a label is missing on a side of the
            split, or such answers have weights of their own.

    """
    alone = pairs.filter(_ALONE)
    if alone.is_empty():
        return pairs
    if algorithm.loss not in TAKES_LONE_ANSWERS or algorithm.length_alpha < 1:
        raise UserError(
            f"{where}: {alone.height} of {pairs.height} pairs are answers judged alone, and the"
            f" loss {algorithm.loss} compares two answers to one prompt; take algorithm: kto, or"
            " bring pairs"
        )
    if alone["weight"].n_unique() > 1:
        raise UserError(
            f"{where}: answers that were judged alone have different weights, which are not read"
            " for them; give their sources one weight"
        )
    whole = pairs.filter(~_ALONE).with_columns(
        **{name: pl.col(column) for name, column in _OTHER.items()}
    )
    made = [_against_each_other(part, where) for part in alone.partition_by("split")]
    return pl.concat([whole, *made])


def encode_opposed(policy: "Policy", pairs: pl.DataFrame, **options: Any) -> PairRows:
    """Encode pairs as `encode_pairs` does, the rejected answers behind their own prompts.

    Args:
        policy: Its tokenizer and chat template are used.
        pairs: Of `opposed`.
        **options: Of `encode_pairs`.

    Returns:
        Rows of each side; a pair of which one side does not fit is left out.

    Raises:
        UserError: No pair fits, or what is there could not be learned from.

    """
    if not _OTHER.keys() <= {*pairs.columns}:
        return encode_steps(policy, pairs, **options)
    rows = encode_pairs(policy, pairs, **options)
    theirs = pairs.with_columns(**{column: pl.col(name) for name, column in _OTHER.items()})
    others = encode_pairs(policy, theirs, **{**options, "extra": None})
    kept = sorted({*rows.kept} & {*others.kept})
    if not kept:
        raise UserError(f"{options['where']}: no pair fits into max_length; raise it")
    places = [{index: place for place, index in enumerate(each.kept)} for each in (rows, others)]
    here, there = ([each[index] for index in kept] for each in places)
    return PairRows(
        sides=[
            [rows.sides[0][place] for place in here],
            [others.sides[1][place] for place in there],
            *([side[place] for place in here] for side in rows.sides[2:]),
        ],
        prompts=[rows.prompts[place] for place in here],
        kept=kept,
        pad=rows.pad,
        facts=rows.facts and PairFacts(rows.facts.weight_B[here], rows.facts.label_prob_B[here]),
    )


def _against_each_other(alone: pl.DataFrame, where: str) -> pl.DataFrame:
    """Good against bad answers of one side of the split."""
    good, bad = alone.filter(pl.col("chosen") != ""), alone.filter(pl.col("rejected") != "")
    counts = {"good": good.height, "bad": bad.height}
    for label, count in counts.items():
        if not count:
            raise UserError(
                f"{where}: there is no {label} answer among the {alone['split'][0]} rows that were"
                " judged alone, and both labels are needed; bring rows with both"
            )
    places = pl.int_range(max(counts.values()), eager=True)
    better, worse = good[places % good.height], bad[places % bad.height]
    return better.with_columns(
        rejected=worse["rejected"],
        **{name: worse[column] for name, column in _OTHER.items()},
    )
