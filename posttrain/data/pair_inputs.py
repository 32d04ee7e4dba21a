"""The pairs that a stage learns from: ready ones or built from samples, and those of before."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from posttrain.data.pair_builders.base import PairBuilder
from posttrain.data.pairs import build_pairs, with_split
from posttrain.data.schemas import COMPLETIONS, IDENTITY, PAIRS, with_row_ids
from posttrain.data.tables import read_table


def read_pair_inputs(
    inputs: Mapping[str, Path],
    *,
    builder: PairBuilder,
    pairs_per_problem: int,
    max_pairs: int | None,
    heldout_fraction: float,
    seed: int,
) -> pl.DataFrame:
    """Read or build the pairs of a stage that has `PAIR_PORTS`.

    Args:
        inputs: Tables by port: `pairs`, or `samples` and perhaps `reference_samples`; and any
            number as `earlier_pairs.name`.
        builder: Builds pairs of samples, and looks through ready ones.
        pairs_per_problem: Most pairs that are built of one problem.
        max_pairs: Most pairs that are built in all.
        heldout_fraction: Share of the problems that is held out, where the pairs have no split.
        seed: Decides the choice and the split.

    Returns:
        PAIRS, with `split` train or heldout.

    """
    if "pairs" in inputs:
        pairs = builder.of_all(read_table(inputs["pairs"], PAIRS).drop("id"))
        if pairs["split"].n_unique() < 2:
            pairs = with_split(pairs, heldout_fraction=heldout_fraction, seed=seed)
        pairs = with_row_ids(pairs, IDENTITY["pairs"]).select(list(PAIRS))
    else:
        beside = inputs.get("reference_samples")
        pairs = build_pairs(
            read_table(inputs["samples"], COMPLETIONS),
            pairs_per_problem=pairs_per_problem,
            heldout_fraction=heldout_fraction,
            seed=seed,
            max_pairs=max_pairs,
            builder=builder,
            reference_samples=None if beside is None else read_table(beside, COMPLETIONS),
        )
    ports = sorted(port for port in inputs if port.startswith("earlier_pairs."))
    return accumulated([read_table(inputs[port], PAIRS) for port in ports], pairs)


def accumulated(earlier: Sequence[pl.DataFrame], pairs: pl.DataFrame) -> pl.DataFrame:
    """Put the pairs of earlier rounds before those of this one.

    A problem stays on the side of the split on which an earlier round had it: the policy has
    learned from it, or must not have.

    Args:
        earlier: PAIRS, the oldest first.
        pairs: PAIRS of now.

    Returns:
        PAIRS; what two rounds have alike is there once.

    """
    if not earlier:
        return pairs
    whole = pl.concat([*earlier, pairs])
    side = pl.col("split").first().over("problem_id")
    return whole.with_columns(split=side).unique("id", keep="first", maintain_order=True)
