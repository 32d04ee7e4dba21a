"""Every rollout of a running stage, trained on or not, until the table is written."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from posttrain.data.tables import read_table, write_table
from posttrain.records import ROLLOUTS
from tasks.rl.rollout import Group, rollouts_table


class RolloutStore:
    """Rollouts of a running stage: in memory since the last checkpoint, in shards before it.

    A shard is named by its last step. What an earlier attempt wrote beyond the checkpoint that is
    taken up is forgotten: those steps are run again.
    """

    def __init__(self, scratch: Path) -> None:
        self.folder = scratch / "rollouts"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._fresh: list[pl.DataFrame] = []

    def add(self, groups: Sequence[Group], *, step: int) -> None:
        """Append the rollouts of one step; steps count from 1."""
        self._fresh.append(rollouts_table(groups, step=step))

    def flush(self, step: int) -> None:
        """Write what is in memory as the shard that ends with `step`."""
        if self._fresh:
            write_table(pl.concat(self._fresh), self.folder / f"{step:09d}.parquet", ROLLOUTS)
            self._fresh = []

    def forget_after(self, step: int) -> None:
        """Drop the shards of later steps."""
        for shard in self._shards():
            if int(shard.stem) > step:
                shard.unlink()

    def merge(self, path: Path) -> int:
        """Write one table of all rollouts; returns the number of rows."""
        frames = [read_table(shard, ROLLOUTS) for shard in self._shards()]
        merged = pl.concat([*frames, *self._fresh], rechunk=True)
        write_table(merged, path, ROLLOUTS)
        return len(merged)

    def _shards(self) -> list[Path]:
        return sorted(self.folder.glob("*.parquet"))
