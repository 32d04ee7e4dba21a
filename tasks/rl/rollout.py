"""Rollouts: attempts with advantages, as records, as tensors and as a table."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from posttrain.attempts import Attempt
from posttrain.data.tables import read_table, write_table
from posttrain.maths.advantages import Scale, group_relative
from posttrain.records import IDENTITY, ROLLOUTS, with_row_ids
from posttrain.sampling.base import Prompt

_EPSILON = 1e-6


@dataclass(frozen=True)
class Rollout:
    """One attempt as the learner sees it."""

    attempt: Attempt
    prompt_ids: tuple[int, ...]
    advantage: float

    @property
    def ids(self) -> tuple[int, ...]:
        """Prompt and completion."""
        return self.prompt_ids + self.attempt.sample.token_ids

    @property
    def reward(self) -> float:
        """What the policy is paid."""
        return reward(self.attempt)


@dataclass(frozen=True)
class RolloutBatch:
    """Rollouts as right-padded tensors; entry `[b, t]` belongs to token t of rollout b."""

    input_ids_BT: Tensor
    mask_BT: Tensor
    """True at the tokens that the policy drew."""
    sampled_logprobs_BT: Tensor
    """The sampler's log-probabilities; 0 where masked."""
    advantages_B: Tensor

    @property
    def num_tokens(self) -> int:
        """Tokens that bear loss."""
        return int(self.mask_BT.sum())


def reward(attempt: Attempt) -> float:
    """1 for a correct answer, else 0: partial credit would pay the policy for being wrong.

    reasoning-gym's arithmetic grants it for an answer that merely contains the right digits.
    """
    return float(attempt.verdict.correct)


def score_groups(
    attempts: Sequence[Attempt], prompts: Sequence[Prompt], *, scale: Scale
) -> list[list[Rollout]]:
    """Advantages within each prompt's attempts, which must be adjacent: one list per prompt."""
    group = len(attempts) // len(prompts)
    rewards_B = torch.tensor([reward(made) for made in attempts], dtype=torch.float64)
    group_B = torch.arange(len(attempts)) // group
    advantages_B = group_relative(
        rewards_B, group_B, baseline="mean", scale=scale, epsilon=_EPSILON
    )
    rollouts = [
        Rollout(made, prompts[index // group].token_ids, float(advantages_B[index]))
        for index, made in enumerate(attempts)
    ]
    return [rollouts[begin : begin + group] for begin in range(0, len(rollouts), group)]


def has_signal(group: Sequence[Rollout]) -> bool:
    """True where the group's rewards differ, so that it has a gradient."""
    return any(rollout.advantage != 0 for rollout in group)


def collate(rollouts: Sequence[Rollout], *, pad: int, device: str) -> RolloutBatch:
    """The one place where rollouts are padded and masked."""
    width = max(len(rollout.ids) for rollout in rollouts)
    ids, mask, logprobs = [], [], []
    for rollout in rollouts:
        before, drawn = len(rollout.prompt_ids), len(rollout.attempt.sample.token_ids)
        after = width - before - drawn
        ids.append([*rollout.ids, *[pad] * after])
        mask.append([False] * before + [True] * drawn + [False] * after)
        logprobs.append([0.0] * before + [*rollout.attempt.sample.logprobs] + [0.0] * after)
    return RolloutBatch(
        torch.tensor(ids, device=device),
        torch.tensor(mask, device=device),
        torch.tensor(logprobs, device=device),
        torch.tensor([rollout.advantage for rollout in rollouts], device=device),
    )


def rollouts_table(rollouts: Sequence[Rollout], *, step: int) -> pl.DataFrame:
    """Lay rollouts of one step out as a ROLLOUTS frame, in the given order."""
    samples = [rollout.attempt.sample for rollout in rollouts]
    problems = [rollout.attempt.problem for rollout in rollouts]
    columns = {
        "parents": [[sample.prompt_id] for sample in samples],
        "problem_id": [sample.prompt_id for sample in samples],
        "step": [step] * len(rollouts),
        "source": [problem.source for problem in problems],
        "prompt_ids": _lists([rollout.prompt_ids for rollout in rollouts], pl.Int32),
        "completion_ids": _lists([sample.token_ids for sample in samples], pl.Int32),
        "logprobs": _lists([sample.logprobs for sample in samples], pl.Float32),
        "finish_reason": [str(sample.finish_reason) for sample in samples],
        "text": [sample.text for sample in samples],
        "reward": [rollout.reward for rollout in rollouts],
        "reward_components": [
            json.dumps({"verifier": rollout.attempt.verdict.score}) for rollout in rollouts
        ],
        "advantage": [rollout.advantage for rollout in rollouts],
        "policy_version": [sample.policy_version for sample in samples],
    }
    schema = {name: kind for name, kind in ROLLOUTS.items() if name != "id"}
    frame = pl.DataFrame(columns, schema=schema)
    return with_row_ids(frame, IDENTITY["rollouts"])


def _lists(rows: Sequence[Sequence[float]], kind: type[pl.DataType]) -> pl.Series:
    """A list column, through one flat series: polars is slow at many small Python lists."""
    values = pl.Series([value for row in rows for value in row], dtype=kind)
    owners = pl.Series([index for index, row in enumerate(rows) for _ in row], dtype=pl.UInt32)
    flat = pl.DataFrame({"owner": owners, "value": values})
    return flat.group_by("owner", maintain_order=True).agg("value")["value"]


class RolloutStore:
    """Rollouts of a running stage: in memory since the last checkpoint, in shards before it.

    A shard is named by its last step, so steps that are run again after a kill replace it.
    """

    def __init__(self, scratch: Path) -> None:
        self.folder = scratch / "rollouts"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._fresh: list[pl.DataFrame] = []

    def add(self, frame: pl.DataFrame) -> None:
        """Append one step's rollouts."""
        self._fresh.append(frame)

    def flush(self, step: int) -> None:
        """Write what is in memory as the shard that ends with `step`."""
        write_table(pl.concat(self._fresh), self.folder / f"{step:09d}.parquet", ROLLOUTS)
        self._fresh = []

    def merge(self, path: Path) -> int:
        """Write one table of all rollouts; returns the number of rows."""
        frames = [read_table(shard, ROLLOUTS) for shard in self._shards()]
        merged = pl.concat([*frames, *self._fresh], rechunk=True)
        write_table(merged, path, ROLLOUTS)
        return len(merged)

    def _shards(self) -> list[Path]:
        return sorted(self.folder.glob("*.parquet"))
