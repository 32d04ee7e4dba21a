"""Preference pairs from judged samples: built within a problem, split by problem."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import polars as pl

from posttrain.data.rows import TokenBatch, TokenRow, TokenTable
from posttrain.data.schemas import IDENTITY, PAIRS, with_row_ids

PairBuilder = Literal["verifier", "best_worst", "length_balanced"]
_Texts = list[tuple[str, str]]


class PairTable:
    """Token rows of pairs; a batch holds the chosen rows, then the rejected ones (and a third)."""

    def __init__(self, *sides: Sequence[TokenRow], pad: int, packed: bool = False) -> None:
        self._table = TokenTable([row for side in sides for row in side], pad=pad, packed=packed)
        self._num_sides, self._num_pairs = len(sides), len(sides[0])

    @property
    def digest(self) -> str:
        """SHA-256 of all tokens, lengths and starts."""
        return self._table.digest

    def batch(self, part: Sequence[int]) -> TokenBatch:
        """The pairs of these indices, padded together; its units are pairs."""
        offsets = [side * self._num_pairs for side in range(self._num_sides)]
        rows = self._table.batch([offset + index for offset in offsets for index in part])
        return replace(rows, num_units=len(part))


def build_pairs(
    samples: pl.DataFrame,
    *,
    pairs_per_problem: int,
    heldout_fraction: float,
    seed: int,
    max_pairs: int | None = None,
    builder: PairBuilder = "verifier",
) -> pl.DataFrame:
    """PAIRS from COMPLETIONS: within a problem, by what the builder calls better and worse.

    `verifier`: every verified text against every refuted one; where there are more than
    `pairs_per_problem`, a seeded choice is made that uses as many texts as it can. `best_worst`:
    texts of the highest score against those of the lowest, if they differ. `length_balanced`: as
    `verifier`, the pairs of closest length first, and then without the widest of those in which the
    more frequent side (the longer one, or the shorter) wins.

    Equal texts of a problem count once; a problem with one kind only gives none. `max_pairs` takes
    the first pair of every problem, then the second, and so on.
    """
    distinct = samples.unique(["problem_id", "text"], keep="first", maintain_order=True)
    rows: list[dict[str, object]] = []
    for group in distinct.partition_by("problem_id", maintain_order=True):
        rows += _pairs_of(group, pairs_per_problem, seed, builder)
    frame = pl.DataFrame(rows, schema={name: PAIRS[name] for name in PAIRS if name != "id"})
    if builder == "length_balanced":
        frame = _balanced(frame)
    if max_pairs is not None:
        turn = pl.int_range(pl.len()).over("problem_id")
        frame = frame.sort(turn, maintain_order=True).head(max_pairs)
    frame = with_split(frame, heldout_fraction=heldout_fraction, seed=seed)
    return with_row_ids(frame, IDENTITY["pairs"]).select(list(PAIRS))


def with_split(pairs: pl.DataFrame, *, heldout_fraction: float, seed: int) -> pl.DataFrame:
    """The pairs with their `split`, by problem."""
    split = _split(pairs["problem_id"].unique().to_list(), heldout_fraction, seed)
    return pairs.with_columns(
        pl.col("problem_id").replace_strict(split, return_dtype=pl.String).alias("split")
    )


def _sides(group: pl.DataFrame, seed: int, builder: PairBuilder) -> tuple[_Texts, _Texts]:
    """(id, text) of the better and of the worse texts of one problem, in a seeded order."""
    problem_id = str(group["problem_id"][0])
    # What could not be judged is on neither side.
    judged = group.drop_nulls("verified")
    rows = judged.select("id", "text", "verified", "score").rows()
    ranked = sorted(rows, key=lambda row: _rank(seed, problem_id, row[0]))
    if builder != "best_worst":
        good = [(row[0], row[1]) for row in ranked if row[2]]
        return good, [(row[0], row[1]) for row in ranked if not row[2]]
    best = max((row[3] for row in ranked), default=0.0)
    worst = min((row[3] for row in ranked), default=0.0)
    if best == worst:
        return [], []
    good = [(row[0], row[1]) for row in ranked if row[3] == best]
    return good, [(row[0], row[1]) for row in ranked if row[3] == worst]


def _cells(good: _Texts, bad: _Texts, limit: int, builder: PairBuilder) -> list[tuple[int, int]]:
    """Places of the pairs to take in the good x bad table."""
    if builder == "length_balanced":
        every = [(i, j) for i in range(len(good)) for j in range(len(bad))]
        return sorted(every, key=lambda c: abs(len(good[c[0]][1]) - len(bad[c[1]][1])))[:limit]
    # Along the diagonals, so that a small limit still meets many texts.
    around = math.lcm(len(good), len(bad)) or 1
    return [
        (step % len(good), (step + step // around) % len(bad))
        for step in range(min(limit, len(good) * len(bad)))
    ]


def _balanced(pairs: pl.DataFrame) -> pl.DataFrame:
    """Without the widest pairs of the more frequent sign, until both signs are equally frequent."""
    gap = pl.col("chosen").str.len_chars().cast(pl.Int64) - pl.col("rejected").str.len_chars()
    marked = pairs.with_row_index("place").with_columns(gap.alias("gap"))
    longer, shorter = marked.filter(pl.col("gap") > 0), marked.filter(pl.col("gap") < 0)
    excess = len(longer) - len(shorter)
    many = longer if excess > 0 else shorter
    wide = many.sort(pl.col("gap").abs(), "place", descending=[True, False]).head(abs(excess))
    return marked.filter(~pl.col("place").is_in(wide["place"].to_list())).select(pairs.columns)


def _pairs_of(
    group: pl.DataFrame, limit: int, seed: int, builder: PairBuilder
) -> list[dict[str, object]]:
    """Pairs of one problem's distinct samples."""
    problem_id, source, prompt = group.select("problem_id", "source", "prompt").row(0)
    good, bad = _sides(group, seed, builder)
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
        for i, j in _cells(good, bad, limit, builder)
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
