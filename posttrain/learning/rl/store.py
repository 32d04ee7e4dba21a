"""Every rollout of a running stage, trained on or not, and the table that is made of them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from posttrain.data.schemas import IDENTITY, ROLLOUTS, with_row_ids
from posttrain.data.tables import read_table, write_table
from posttrain.learning.rl.rollout import Group, Rollout, from_values, grouped
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of_file

_TOKENS_AT_ONCE = 1 << 16
"""Drawn tokens that wait to be laid out: what a frame costs is mostly for there being one."""


class RolloutStore:
    """Rollouts of a running stage: in memory since the last checkpoint, in shards before it.

    A shard is named by its last step. A checkpoint holds the digests of the shards, so that one
    that is gone or damaged is not passed over; what an earlier attempt wrote beyond the checkpoint
    is forgotten, as those steps are run again.
    """

    def __init__(self, scratch: Path) -> None:
        self.folder = scratch / "rollouts"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._fresh: list[pl.DataFrame] = []
        self._waiting: list[tuple[int, Rollout]] = []
        self._num_tokens = 0
        self._digests: dict[str, str] = {}

    def add(self, groups: Sequence[Group], *, step: int) -> None:
        """Append the rollouts of one step.

        Args:
            groups: All groups that were drawn, learned from or not.
            step: Counted from 1.

        """
        rollouts = [rollout for group in groups for rollout in group]
        self._waiting += [(step, rollout) for rollout in rollouts]
        self._num_tokens += sum(rollout.num_drawn for rollout in rollouts)
        if self._num_tokens >= _TOKENS_AT_ONCE:
            self._laid_out()

    def flush(self, step: int) -> None:
        """Write what is in memory as the shard that ends with `step`."""
        if frames := self._laid_out():
            shard = self.folder / f"{step:09d}.parquet"
            write_table(pl.concat(frames), shard, ROLLOUTS)
            self._digests.pop(shard.name, None)
            self._fresh = []

    def state_dict(self) -> dict[str, str]:
        """Digest of every shard by its name; what is in memory must be flushed before."""
        for shard in self._shards():
            if shard.name not in self._digests:
                self._digests[shard.name] = sha256_of_file(shard)
        return dict(self._digests)

    def load_state_dict(self, state: Mapping[str, str]) -> None:
        """Hold the shards against what `state_dict` said, and drop those of later steps."""
        self._fresh, self._waiting, self._num_tokens, self._digests = [], [], 0, {}
        for shard in self._shards():
            if shard.name not in state:
                shard.unlink()
        for name, digest in state.items():
            shard = self.folder / name
            if not shard.is_file() or sha256_of_file(shard) != digest:
                raise UserError(
                    f"{shard}: these rollouts of an earlier attempt are missing or damaged;"
                    f" remove {self.folder.parent} and run again"
                )
        self._digests = dict(state)

    def merge(self, path: Path, *, learned: int) -> int:
        """Write one table of all rollouts.

        What was taught after the first `learned` steps is not in the policy that is saved, so it
        counts as not trained on: a replay of the table ends where the policy does.

        Args:
            path: The table to write.
            learned: How many steps the saved policy has learned from.

        Returns:
            The number of rows.

        """
        frames = [read_table(shard, ROLLOUTS) for shard in self._shards()]
        merged = pl.concat([*frames, *self._laid_out()], rechunk=True)
        merged = merged.with_columns(pl.col("trained") & (pl.col("step") <= learned))
        write_table(merged, path, ROLLOUTS)
        return len(merged)

    def _laid_out(self) -> list[pl.DataFrame]:
        """What is in memory, with nothing left to wait."""
        if self._waiting:
            self._fresh.append(rollouts_table(self._waiting))
            self._waiting, self._num_tokens = [], 0
        return self._fresh

    def _shards(self) -> list[Path]:
        return sorted(self.folder.glob("*.parquet"))


def merge_stores(stores: Mapping[str, RolloutStore], path: Path, *, learned: int) -> int:
    """Write one table of all rollouts of several policies, step by step.

    Args:
        stores: Of each policy, by its name.
        path: The table to write.
        learned: How many steps the saved policies have learned from.

    Returns:
        The number of rows.

    """
    tables = []
    for name, store in stores.items():
        own = path.with_name(f"{name}-{path.name}")
        store.merge(own, learned=learned)
        tables.append(read_table(own, ROLLOUTS))
        own.unlink()
    merged = pl.concat(tables).sort("step", maintain_order=True)
    write_table(merged, path, ROLLOUTS)
    return len(merged)


def rollouts_table(rollouts: Sequence[tuple[int, Rollout]]) -> pl.DataFrame:
    """Lay rollouts, each with its step, out as a ROLLOUTS frame, in the given order."""
    rows = [rollout for _, rollout in rollouts]
    columns: dict[str, Any] = {
        name: [row[place] for row in rows] for place, name in enumerate(Rollout._fields)
    }
    spans = [row.spans for row in rows]
    columns |= {
        "step": [step for step, _ in rollouts],
        "token_ids": _lists(columns["token_ids"], np.int32),
        "logprobs": _lists(columns["logprobs"], np.float32),
        "versions": _lists(columns["versions"], np.int32),
        "spans": _records(spans, ROLLOUTS["spans"]),
        "turns": _records(columns["turns"], ROLLOUTS["turns"]),
        "components": _records(columns["components"], ROLLOUTS["components"]),
        "facts": _records(columns["facts"], ROLLOUTS["facts"]),
        "token_rewards": _lists(columns["token_rewards"], np.float64),
        "advantages": _lists(_per_token(rows), np.float32),
        "entropies": _lists(columns["entropies"], np.float32),
    }
    schema = {name: kind for name, kind in ROLLOUTS.items() if name in columns}
    frame = pl.DataFrame({name: columns[name] for name in schema}, schema=schema)
    parents = [[row.problem_id, *row.read] for row in rows]
    frame = frame.with_columns(pl.Series("parents", parents, dtype=ROLLOUTS["parents"]))
    return with_row_ids(frame, IDENTITY["rollouts"]).select(ROLLOUTS.names())


def stored_groups(frame: pl.DataFrame) -> Iterator[tuple[int, list[Group]]]:
    """Return the groups of a ROLLOUTS table by step, in the order in which they were drawn."""
    for part in frame.partition_by("step", maintain_order=True):
        # Of a row's parents the first is its problem.
        whole = part.with_columns(read=pl.col("parents").list.slice(1))
        rows = whole.select(Rollout._fields).iter_rows(named=True)
        yield part["step"][0], grouped([_from_row(row) for row in rows])


def _from_row(row: Mapping[str, Any]) -> Rollout:
    turns = [(each["earned"], each["key"]) for each in row["turns"]]
    named = {
        name: [(each["name"], each["value"]) for each in row[name]]
        for name in ("components", "facts")
    }
    return from_values({**row, "turns": turns, **named})


def _per_token(rows: Sequence[Rollout]) -> list[Sequence[float]]:
    """Spread an advantage that all drawn tokens share over them."""
    return [
        row.advantages * row.num_drawn if len(row.advantages) == 1 else row.advantages
        for row in rows
    ]


def _lists(rows: Sequence[Sequence[float]], kind: type[np.generic]) -> pl.Series:
    """Build a list column through one flat array.

    Polars is slow at many small Python lists, and pyarrow imports pandas for its first array.
    """
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    values = np.fromiter(chain.from_iterable(rows), kind, lengths.sum())
    return _nested(pl.DataFrame({"value": values}), lengths)


def _records(rows: Sequence[Sequence[tuple[Any, ...]]], kind: pl.DataType) -> pl.Series:
    """Build a column of lists of records, likewise."""
    assert isinstance(kind, pl.List)
    assert isinstance(kind.inner, pl.Struct)
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    flat = pl.DataFrame(
        list(chain.from_iterable(rows)),
        schema={f.name: f.dtype for f in kind.inner.fields},
        orient="row",
    )
    return _nested(pl.DataFrame({"value": flat.to_struct("value")}), lengths)


def _nested(flat: pl.DataFrame, lengths: np.ndarray[Any, np.dtype[np.int64]]) -> pl.Series:
    """One list of `value` per length; empty ones too."""
    owners = np.arange(len(lengths), dtype=np.uint32)
    found = (
        flat.with_columns(owner=owners.repeat(lengths))
        .group_by("owner", maintain_order=True)
        .agg("value")
    )
    whole = pl.DataFrame({"owner": owners}).join(
        found, on="owner", how="left", maintain_order="left"
    )
    return whole["value"].fill_null([])
