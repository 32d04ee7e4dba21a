"""Preference pairs from judged samples: built within a problem, split by problem."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from posttrain.data.rows import TokenBatch, TokenRow, TokenTable
from posttrain.records import IDENTITY, PAIRS, with_row_ids


class PairTable:
    """Token rows of pairs; a batch holds the chosen rows, then the rejected ones."""

    def __init__(
        self,
        chosen: Sequence[TokenRow],
        rejected: Sequence[TokenRow],
        *,
        pad: int,
        packed: bool = False,
    ) -> None:
        self._table = TokenTable([*chosen, *rejected], pad=pad, packed=packed)
        self._num_pairs = len(chosen)

    @property
    def digest(self) -> str:
        """SHA-256 of all tokens, lengths and starts."""
        return self._table.digest

    def batch(self, part: Sequence[int]) -> TokenBatch:
        """The pairs of these indices, padded together; its units are pairs."""
        rows = self._table.batch([*part, *(self._num_pairs + index for index in part)])
        return replace(rows, num_units=len(part))


def build_pairs(
    samples: pl.DataFrame,
    *,
    pairs_per_problem: int,
    heldout_fraction: float,
    seed: int,
    max_pairs: int | None = None,
) -> pl.DataFrame:
    """PAIRS from COMPLETIONS: every verified text against every refuted one of the same problem.

    Equal texts of a problem count once; a problem with one kind only gives none. Where there are
    more than `pairs_per_problem`, a seeded choice is made that uses as many texts as it can.
    `max_pairs` takes the first pair of every problem, then the second, and so on.
    """
    distinct = samples.unique(["problem_id", "text"], keep="first", maintain_order=True)
    rows: list[dict[str, object]] = []
    for group in distinct.partition_by("problem_id", maintain_order=True):
        rows += _pairs_of(group, pairs_per_problem, seed)
    frame = pl.DataFrame(rows, schema={name: PAIRS[name] for name in PAIRS if name != "id"})
    if max_pairs is not None:
        turn = pl.int_range(pl.len()).over("problem_id")
        frame = frame.sort(turn, maintain_order=True).head(max_pairs)
    split = _split(frame["problem_id"].unique().to_list(), heldout_fraction, seed)
    frame = frame.with_columns(
        pl.col("problem_id").replace_strict(split, return_dtype=pl.String).alias("split")
    )
    return with_row_ids(frame, IDENTITY["pairs"]).select(list(PAIRS))


def _pairs_of(group: pl.DataFrame, limit: int, seed: int) -> list[dict[str, object]]:
    """Pairs of one problem's distinct samples."""
    problem_id, source, prompt = group.select("problem_id", "source", "prompt").row(0)
    verdicts = group.select("id", "text", "verified").rows()
    ranked = sorted(verdicts, key=lambda row: _rank(seed, problem_id, row[0]))
    good = [row for row in ranked if row[2]]
    bad = [row for row in ranked if not row[2]]
    # Along the diagonals of the good x bad table, so that a small limit still meets many texts.
    around = math.lcm(len(good), len(bad)) or 1
    cells = [
        (step % len(good), (step + step // around) % len(bad))
        for step in range(min(limit, len(good) * len(bad)))
    ]
    return [
        {
            "parents": [good[i][0], bad[j][0]],
            "problem_id": problem_id,
            "source": source,
            "prompt": prompt,
            "chosen": good[i][1],
            "rejected": bad[j][1],
            "split": "",
        }
        for i, j in cells
    ]


def _split(problem_ids: list[str], heldout_fraction: float, seed: int) -> dict[str, str]:
    """Train or held out, by problem: at least one of each where there are two problems."""
    ranked = sorted(problem_ids, key=lambda name: _rank(seed, "split", name))
    num_heldout = min(len(ranked) - 1, max(1, round(heldout_fraction * len(ranked))))
    return {
        name: "heldout" if place < num_heldout else "train" for place, name in enumerate(ranked)
    }


def _rank(seed: int, purpose: str, name: str) -> bytes:
    """A pseudo-random sort key that depends on nothing but the name."""
    return hashlib.sha256(f"{seed}:{purpose}:{name}".encode()).digest()
