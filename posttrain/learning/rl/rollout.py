"""Rollouts: attempts with rewards and advantages, as records and as rows of a table."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from posttrain.data.schemas import IDENTITY, ROLLOUTS, with_row_ids
from posttrain.learning.rollouts.engines.base import FinishReason, Prompt
from posttrain.learning.rollouts.scoring import ScoredSample
from posttrain.stage.errors import UserError


class Rollout(NamedTuple):
    """One attempt as the learner sees it: what a row of the table holds, but for its step."""

    problem_id: str
    source: str
    group: int
    """Which of its step's draws it belongs to; 0 for the first problem drawn."""
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    text: str
    reward: float
    reward_components: str
    policy_version: int
    advantage: float = 0.0
    trained: bool = False
    """Whether the learner was given it."""

    @property
    def ids(self) -> tuple[int, ...]:
        """Prompt and completion."""
        return self.prompt_ids + self.completion_ids

    @property
    def truncated(self) -> bool:
        """True where it was cut off at the limit of tokens."""
        return self.finish_reason == FinishReason.LENGTH

    @property
    def scored(self) -> bool:
        """False where nothing could judge it: a judge's reply had no grade in it."""
        return self.reward_components != _UNSCORED


Group = list[Rollout]
_UNSCORED = json.dumps({"verifier": None})


def reward(attempt: ScoredSample) -> float:
    """1 for a correct answer, else 0: partial credit would pay the policy for being wrong.

    reasoning-gym's arithmetic grants it for an answer that merely contains the right digits.
    """
    return float(bool(attempt.score.correct))


def _components(attempt: ScoredSample) -> str:
    return json.dumps({"verifier": attempt.score.value})


def as_groups(
    attempts: Sequence[ScoredSample], prompts: Sequence[Prompt], *, first: int = 0
) -> list[Group]:
    """One group per prompt, whose attempts must be adjacent; groups are numbered from `first`."""
    size = len(attempts) // len(prompts)
    for made in attempts:
        _check(made)
    rollouts = [
        Rollout(
            problem_id=made.sample.prompt_id,
            source=made.problem.source,
            group=first + index // size,
            prompt_ids=prompts[index // size].token_ids,
            completion_ids=made.sample.token_ids,
            logprobs=made.sample.logprobs,
            finish_reason=str(made.sample.finish_reason),
            text=made.sample.text,
            reward=reward(made),
            reward_components=_components(made),
            policy_version=made.sample.policy_version,
        )
        for index, made in enumerate(attempts)
    ]
    return grouped(rollouts)


def _check(made: ScoredSample) -> None:
    """Refuse a sample that no learner could use, whichever engine drew it."""
    sample = made.sample
    if not sample.token_ids or len(sample.token_ids) != len(sample.logprobs):
        raise UserError(
            f"rl: a sample of problem {sample.prompt_id} has {len(sample.token_ids)} tokens and"
            f" {len(sample.logprobs)} log-probabilities; a learner needs one for each token, and"
            " at least one token: check the engine's settings"
        )
    if not math.isfinite(math.fsum(sample.logprobs)):
        raise UserError(
            f"rl: a sample of problem {sample.prompt_id} has a log-probability that is not finite;"
            " the engine drew what its policy excludes: check its number format"
        )


def grouped(rollouts: Sequence[Rollout]) -> list[Group]:
    """Adjacent rollouts of one group together."""
    groups: list[Group] = []
    for rollout in rollouts:
        if groups and groups[-1][0].group == rollout.group:
            groups[-1].append(rollout)
        else:
            groups.append([rollout])
    return groups


def marked(group: Group, *, trained: bool) -> Group:
    """The same group, given to the learner or not."""
    return [rollout._replace(trained=trained) for rollout in group]


def has_signal(group: Sequence[Rollout]) -> bool:
    """True where an advantage is not 0, so that the group has a gradient."""
    return any(rollout.advantage != 0 for rollout in group)


def plain(groups: Sequence[Group]) -> list[tuple[Any, ...]]:
    """Groups as plain values, for a checkpoint."""
    return [tuple(rollout) for group in groups for rollout in group]


def from_plain(rows: Sequence[Sequence[Any]]) -> list[Group]:
    """What `plain` was given."""
    return grouped([Rollout(*row) for row in rows])


def rollouts_table(rollouts: Sequence[tuple[int, Rollout]]) -> pl.DataFrame:
    """Lay rollouts, each with its step, out as a ROLLOUTS frame, in the given order."""
    rows = [rollout for _, rollout in rollouts]
    columns: dict[str, Any] = {
        name: [row[place] for row in rows] for place, name in enumerate(Rollout._fields)
    }
    columns |= {
        "step": [step for step, _ in rollouts],
        "prompt_ids": _lists(columns["prompt_ids"], np.int32),
        "completion_ids": _lists(columns["completion_ids"], np.int32),
        "logprobs": _lists(columns["logprobs"], np.float32),
    }
    schema = {name: kind for name, kind in ROLLOUTS.items() if name in columns}
    frame = pl.DataFrame({name: columns[name] for name in schema}, schema=schema)
    frame = frame.with_columns(parents=pl.concat_list("problem_id"))
    return with_row_ids(frame, IDENTITY["rollouts"]).select(ROLLOUTS.names())


def stored_groups(frame: pl.DataFrame) -> Iterator[tuple[int, list[Group]]]:
    """Step by step, the groups of a ROLLOUTS table in the order in which they were drawn."""
    for part in frame.partition_by("step", maintain_order=True):
        rows = part.select(Rollout._fields).iter_rows(named=True)
        yield part["step"][0], grouped([_from_row(row) for row in rows])


def _from_row(row: Mapping[str, Any]) -> Rollout:
    lists = ("prompt_ids", "completion_ids", "logprobs")
    return Rollout(**{**row, **{name: tuple(row[name]) for name in lists}})


def _lists(rows: Sequence[Sequence[float]], kind: type[np.generic]) -> pl.Series:
    """A list column of rows that are not empty, through one flat array.

    Polars is slow at many small Python lists, and pyarrow imports pandas for its first array.
    """
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    values = np.fromiter(chain.from_iterable(rows), kind, lengths.sum())
    owners = np.arange(len(rows), dtype=np.uint32).repeat(lengths)
    flat = pl.DataFrame({"owner": owners, "value": values})
    return flat.group_by("owner", maintain_order=True).agg("value")["value"]
