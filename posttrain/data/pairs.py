"""Preference pairs from judged samples: built within a problem, split by problem."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from posttrain.data.contexts import of_both_sides
from posttrain.data.pair_builders.base import PairBuilder, PairCandidate
from posttrain.data.pair_facts import PairFacts
from posttrain.data.rows import TokenBatch, TokenRow, TokenTable
from posttrain.data.schemas import IDENTITY, PAIRS, with_row_ids
from posttrain.stage.hashing import sha256_of_json
from posttrain.stage.seeds import order_key


class PairTable:
    """Token rows of pairs; a batch holds the chosen rows, then the rejected ones (and a third)."""

    def __init__(
        self,
        *sides: Sequence[TokenRow],
        pad: int,
        packed: bool = False,
        facts: PairFacts | None = None,
    ) -> None:
        self._table = TokenTable([row for side in sides for row in side], pad=pad, packed=packed)
        self._num_sides, self._num_pairs = len(sides), len(sides[0])
        self._facts = facts

    @property
    def digest(self) -> str:
        """SHA-256 of all tokens, lengths and starts, and of what is known of the pairs."""
        if self._facts is None:
            return self._table.digest
        numbers = [self._facts.weight_B.tolist(), self._facts.label_prob_B.tolist()]
        if self._facts.gap_B is not None:
            numbers.append(self._facts.gap_B.tolist())
        return sha256_of_json([self._table.digest, *numbers])

    def batch(self, part: Sequence[int]) -> TokenBatch:
        """The pairs of these indices, padded together; its units are pairs, by their weights."""
        offsets = [side * self._num_pairs for side in range(self._num_sides)]
        rows = self._table.batch([offset + index for offset in offsets for index in part])
        if self._facts is None:
            return replace(rows, num_units=len(part))
        facts = self._facts.take(part)
        return replace(rows, num_units=float(facts.weight_B.double().sum()), pairs=facts)


def build_pairs(
    samples: pl.DataFrame,
    *,
    pairs_per_problem: int,
    heldout_fraction: float,
    seed: int,
    max_pairs: int | None = None,
    builder: PairBuilder,
    reference_samples: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Build PAIRS from COMPLETIONS, within each problem.

    Equal texts of a problem count once, but where they end different episodes. What could not be
    judged is on neither side, and a problem with nothing to prefer gives no pair.

    Args:
        samples: Judged completions, several of a problem.
        pairs_per_problem: Most pairs that one problem gives.
        heldout_fraction: Share of the problems whose pairs are held out, 0 to 1.
        seed: Decides the choice and the split.
        max_pairs: Most pairs in all: the first pair of every problem, then the second, and so on.
        builder: What stands against what.
        reference_samples: Judged completions of a reference, beside them or against them.

    Returns:
        PAIRS, with `split` train or heldout.

    """
    distinct = _marked(samples, reference_samples)
    rows: list[dict[str, object]] = []
    for group in distinct.partition_by("problem_id", maintain_order=True):
        rows += _pairs_of(group, pairs_per_problem, seed, builder)
    frame = pl.DataFrame(rows, schema={name: PAIRS[name] for name in PAIRS if name != "id"})
    frame = builder.of_all(frame)
    if max_pairs is not None:
        turn = pl.int_range(pl.len()).over("problem_id")
        frame = frame.sort(turn, maintain_order=True).head(max_pairs)
    frame = with_split(frame, heldout_fraction=heldout_fraction, seed=seed)
    return with_row_ids(frame, IDENTITY["pairs"]).select(list(PAIRS))


def _marked(samples: pl.DataFrame, reference_samples: pl.DataFrame | None) -> pl.DataFrame:
    """Distinct completions of each problem, with whose they are: the reference's or not."""
    tables = [samples.with_columns(of_reference=pl.lit(False))]
    if reference_samples is not None:
        asked = reference_samples.join(samples, on="problem_id", how="semi", maintain_order="left")
        tables.append(asked.with_columns(of_reference=pl.lit(True)).select(tables[0].columns))
    same = ["problem_id", "context", "text"]
    # What both wrote is the policy's.
    counted = pl.concat(tables).with_columns(drawn=pl.len().over(same).cast(pl.Int32))
    return counted.unique(same, keep="first", maintain_order=True)


def with_split(pairs: pl.DataFrame, *, heldout_fraction: float, seed: int) -> pl.DataFrame:
    """Give the pairs their `split`, by problem."""
    split = _split(pairs["problem_id"].unique().to_list(), heldout_fraction, seed)
    return pairs.with_columns(
        pl.col("problem_id").replace_strict(split, return_dtype=pl.String).alias("split")
    )


def _pairs_of(
    group: pl.DataFrame, limit: int, seed: int, builder: PairBuilder
) -> list[dict[str, object]]:
    """Pairs of one problem's distinct samples."""
    problem_id, source, prompt = group.select("problem_id", "source", "prompt").row(0)
    own = ("id", "text", "verified", "score", "of_reference", "context", "drawn")
    judged = group.drop_nulls("verified").select(own)
    candidates = [PairCandidate(*row) for row in judged.rows()]
    candidates.sort(key=lambda each: order_key(seed, problem_id, each.id))
    about = {"problem_id": problem_id, "source": source, "prompt": prompt}
    return [
        about | {"context": of_both_sides(*(side.context for side in pair))} | pair_row(*pair)
        for pair in builder.of_problem(candidates, limit)
    ]


def pair_row(better: PairCandidate, worse: PairCandidate) -> dict[str, object]:
    """Return a row of PAIRS, but for its id and for what it says of the problem."""
    return {
        "parents": [better.id, worse.id],
        "chosen": better.text,
        "rejected": worse.text,
        "split": "",
        "chosen_score": better.score,
        "rejected_score": worse.score,
        "label_prob": 1.0,
        "rationale": "",
        "step_start": better.step,
        "weight": 1.0,
    }


def _split(problem_ids: list[str], heldout_fraction: float, seed: int) -> dict[str, str]:
    """Train or held out, by problem: at least one of each where there are two problems."""
    ranked = sorted(problem_ids, key=lambda name: order_key(seed, "split", name))
    num_heldout = min(len(ranked) - 1, max(1, round(heldout_fraction * len(ranked))))
    return {
        name: "heldout" if place < num_heldout else "train" for place, name in enumerate(ranked)
    }
