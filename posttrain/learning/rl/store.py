"""Every rollout of a running stage, trained on or not, until the table is written."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from posttrain.data.schemas import ROLLOUTS
from posttrain.data.tables import read_table, write_table
from posttrain.learning.rl.rollout import Group, Rollout, rollouts_table
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

    def add(self, groups: Sequence[Group], *, step: int) -> None:
        """Append the rollouts of one step; steps count from 1."""
        rollouts = [rollout for group in groups for rollout in group]
        self._waiting += [(step, rollout) for rollout in rollouts]
        self._num_tokens += sum(rollout.num_drawn for rollout in rollouts)
        if self._num_tokens >= _TOKENS_AT_ONCE:
            self._laid_out()

    def flush(self, step: int) -> None:
        """Write what is in memory as the shard that ends with `step`."""
        if frames := self._laid_out():
            write_table(pl.concat(frames), self.folder / f"{step:09d}.parquet", ROLLOUTS)
            self._fresh = []

    def state_dict(self) -> dict[str, str]:
        """Digest of every shard by its name; what is in memory must be flushed before."""
        return {shard.name: sha256_of_file(shard) for shard in self._shards()}

    def load_state_dict(self, state: Mapping[str, str]) -> None:
        """Hold the shards against what `state_dict` said, and drop those of later steps."""
        self._fresh, self._waiting, self._num_tokens = [], [], 0
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
