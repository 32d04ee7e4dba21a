"""Rollouts as what is learned from: samples with their advantages, and both as padded tensors."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, compress
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from posttrain.learning.algorithms.advantages.base import Advantage
from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch
from posttrain.learning.algorithms.objective import informative
from posttrain.learning.rewards.config import REWARD
from posttrain.learning.rl.failures import errors_of_rl
from posttrain.learning.rl.rollout import Group, Rollout, wholes
from posttrain.learning.rl.turn_columns import state_column, turn_columns

TokenValues = tuple[float, ...]


@dataclass(frozen=True)
class TrainSample:
    """What the learner needs of one rollout: its tokens and, token by token, what they earned.

    A column that the algorithm has no use for is empty.
    """

    token_ids: tuple[int, ...]
    """What was read and what was drawn, in order."""
    drawn: tuple[bool, ...]
    """True at the drawn ones of all tokens."""
    logprobs: TokenValues
    """Of the engine, one per drawn token, in nats."""
    policy_version: int
    """Step whose policy drew it; the oldest of several."""
    advantages: TokenValues
    """One per drawn token, or a single one that all of them share."""
    returns: TokenValues = ()
    """Targets of the critic's values."""
    values: TokenValues = ()
    """The critic's values before the first update."""
    old_logprobs: TokenValues = ()
    """Of the policy before the first update, where it is not the engine's."""
    vocabulary_logprobs: TokenValues = ()
    """Of the policy before the first update, mean over the vocabulary where a token was drawn."""
    weights: TokenValues = ()
    """Token weights that were fixed before the first update; one per drawn token, or one."""
    marks: tuple[TokenValues, ...] = ()
    """What each regularizer that marks tokens said of these before the first update."""
    group: int = 0
    """Which of its step's groups it belongs to."""
    group_mean: float = 0.0
    """Mean reward of the whole group."""
    group_deviation: float = 0.0
    """Population deviation of the rewards of the whole group."""
    versions: tuple[int, ...] = ()
    """Step whose policy drew each drawn token; none where one policy drew them all."""
    foreign: bool = False
    """True where others than the policy wrote it."""

    @property
    def num_tokens(self) -> int:
        """Of what was read and what was drawn."""
        return len(self.token_ids)

    @classmethod
    def bare(cls, rollout: Rollout) -> Self:
        """A rollout's tokens, with nothing earned yet."""
        return cls(
            token_ids=rollout.token_ids,
            drawn=tuple(rollout.drawn),
            logprobs=rollout.logprobs,
            policy_version=rollout.policy_version,
            advantages=(0.0,),
            group=rollout.group,
            versions=rollout.token_versions,
            foreign=rollout.foreign,
        )

    def state_dict(self) -> dict[str, Any]:
        """The fields by name, for a checkpoint."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Self:
        """What `state_dict` gave."""
        return cls(**state)


@dataclass(frozen=True, kw_only=True)
class TrainBatch(PolicyBatch):
    """Samples as right-padded tensors; entry `[b, t]` belongs to token t of rollout b.

    All but `input_ids_BT` is 0 where `mask_BT` is false.
    """

    input_ids_BT: Tensor
    returns_BT: Tensor | None = None
    values_BT: Tensor | None = None
    vocabulary_logprobs_BT: Tensor | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens that bear loss."""
        return int(self.mask_BT.sum())


def lengths_and_groups(samples: Sequence[TrainSample]) -> tuple[list[int], list[int]]:
    """Tokens of each sample, and which group each is of."""
    return [sample.num_tokens for sample in samples], [sample.group for sample in samples]


def collate(
    samples: Sequence[TrainSample],
    *,
    pad: int,
    device: str,
    positions: Sequence[TokenValues] = (),
    past_K2: Tensor | None = None,
) -> TrainBatch:
    """Pad and mask.

    Args:
        samples: What goes through the model together.
        pad: Id of the padding token.
        device: Where the tensors go.
        positions: Where between engine (0) and present policy (1) the policy before the updates
            was, one number per sample or per drawn token; none means 0.
        past_K2: What regularizers measured so far, as the batch has it.

    Returns:
        The batch; a column that no sample has is None.

    """
    end_B = np.array([sample.num_tokens for sample in samples])
    place_T = np.arange(end_B.max())
    inside_BT = place_T < end_B[:, None]
    mask_BT = np.zeros(inside_BT.shape, np.bool_)
    mask_BT[inside_BT] = np.fromiter(chain.from_iterable(each.drawn for each in samples), np.bool_)

    def tokens(rows: Sequence[TokenValues]) -> Tensor:
        return _padded(rows, mask_BT, 0.0, np.float32).to(device)

    def optional(rows: Sequence[TokenValues]) -> Tensor | None:
        return tokens(rows) if all(rows) else None

    def shared(rows: Sequence[TokenValues]) -> Tensor | None:
        """`[B, 1]` where each rollout has one number for all its tokens."""
        if not all(rows):
            return None
        if all(len(row) == 1 for row in rows):
            return torch.tensor(rows, dtype=torch.float32, device=device)
        drawn = [len(sample.logprobs) for sample in samples]
        whole = [row if len(row) > 1 else row * n for row, n in zip(rows, drawn, strict=True)]
        return tokens(whole)

    def numbers(column: Sequence[float]) -> Tensor:
        return torch.tensor(column, dtype=torch.float32, device=device)

    advantages_BT = shared([sample.advantages for sample in samples])
    assert advantages_BT is not None
    ids = [sample.token_ids for sample in samples]
    marks = [tokens(rows) for rows in zip(*(sample.marks for sample in samples), strict=True)]
    return TrainBatch(
        input_ids_BT=_padded(ids, inside_BT, pad, np.int64).to(device),
        mask_BT=torch.from_numpy(mask_BT).to(device),
        sampled_logprobs_BT=tokens([sample.logprobs for sample in samples]),
        advantages_BT=advantages_BT,
        position_BT=shared(positions or [(0.0,)] * len(samples)),
        returns_BT=optional([sample.returns for sample in samples]),
        values_BT=optional([sample.values for sample in samples]),
        old_logprobs_BT=optional([sample.old_logprobs for sample in samples]),
        vocabulary_logprobs_BT=optional([sample.vocabulary_logprobs for sample in samples]),
        weights_BT=shared([sample.weights for sample in samples]),
        marks_KBT=torch.stack(marks) if marks else None,
        past_K2=past_K2,
        group_B=torch.tensor([sample.group for sample in samples], device=device),
        group_mean_B=numbers([sample.group_mean for sample in samples]),
        group_deviation_B=numbers([sample.group_deviation for sample in samples]),
        foreign_B=_foreign(samples, device),
    )


def _foreign(rows: Sequence[TrainSample] | Sequence[Rollout], device: str = "cpu") -> Tensor | None:
    """True for rows that others wrote, `[B]`; None where the policy wrote all."""
    flags = [row.foreign for row in rows]
    return torch.tensor(flags, device=device) if any(flags) else None


def _padded(
    rows: Sequence[Sequence[float]],
    inside_BT: np.ndarray[Any, np.dtype[np.bool_]],
    fill: float,
    kind: type[np.generic],
) -> Tensor:
    """The rows at the places that are theirs; quicker than a tensor of nested lists."""
    padded_BT = np.full(inside_BT.shape, fill, kind)
    padded_BT[inside_BT] = np.fromiter(chain.from_iterable(rows), kind)
    return torch.from_numpy(padded_BT)


def informative_groups(
    groups: Sequence[Group], advantage: Advantage, *, by: str = REWARD
) -> list[bool]:
    """Tell which groups have something to teach, by one component of their rewards alone.

    DAPO keeps the groups of which some answers are right and some are wrong (arXiv 2503.14476,
    equation 11): what else the reward pays for, such as brevity, makes no group worth learning.

    Args:
        groups: Any groups, learned from or not.
        advantage: Knows whose rewards differ from what.
        by: The component; `reward` for the rewards themselves, by which a rollout is judged too
            that has no component of that name.

    Returns:
        True or false for each group.

    """
    if not groups:
        return []
    whole = [wholes(group) for group in groups]
    rollouts = [_paid_by(by, rollout) for group in whole for rollout in group]
    with errors_of_rl():
        found_B = informative(advantage, rollout_batch(rollouts, needs=advantage.needs))
    parts = torch.split(found_B, [len(group) for group in whole])
    return [bool(part.any()) for part in parts]


def _paid_by(component: str, rollout: Rollout) -> Rollout:
    """A rollout as if one component were its whole reward; what has no reward has none of it."""
    if component == REWARD or rollout.reward is None:
        return rollout
    # Tables of 0.1 have another name for the only component.
    paid = dict(rollout.components).get(component, rollout.reward)
    return rollout._replace(reward=paid, token_rewards=())


def rollout_batch(
    rollouts: Sequence[Rollout],
    *,
    needs: Collection[str] = (),
    columns: Mapping[str, Sequence[TokenValues]] | None = None,
    apart: Mapping[str, float] | None = None,
) -> RolloutBatch:
    """Lay rewards and drawn tokens out: column t is the t-th drawn token of each rollout.

    A rollout that was cut off ends like any other, with its reward and no value after it: that is
    the task as TRL and verl pose it to their critics too, where running out of tokens is a failure
    of the answer and not an interruption.

    Args:
        rollouts: At least one.
        needs: Names of `part.NEEDS`.
        columns: One number per drawn token: `values`, `reference_logprobs`, `entropy`.
        apart: Weight of each component whose advantages are taken by themselves.

    Returns:
        Left-aligned tensors; None for a column that is not given.

    """
    lengths = [rollout.num_drawn for rollout in rollouts]
    mask_BT = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    width = mask_BT.shape[1]

    def padded(rows: Sequence[Sequence[float]], dtype: torch.dtype | None = None) -> Tensor:
        return torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows], dtype=dtype)

    given = {f"{name}_BT": padded(rows) for name, rows in (columns or {}).items()}
    if given or "generation_logprobs" in needs:
        given["sampled_logprobs_BT"] = padded([rollout.logprobs for rollout in rollouts])
    if "token_ids" in needs:
        drawn = [compress(rollout.token_ids, rollout.drawn) for rollout in rollouts]
        given["token_ids_BT"] = padded([[*ids] for ids in drawn], torch.int64)
    # Where nothing could tell what a rollout is worth, `scored_B` leaves it out.
    rewards = [0.0 if rollout.reward is None else rollout.reward for rollout in rollouts]
    rewards_B = torch.tensor(rewards, dtype=torch.float64)
    if any(rollout.token_rewards for rollout in rollouts):
        by_token_BT = padded([rollout.token_rewards for rollout in rollouts], torch.float64)
        given["token_rewards_BT"] = by_token_BT
        # What is left is paid at the end.
        rewards_B = rewards_B - by_token_BT.sum(-1)
    if "turns" in needs:
        given |= turn_columns(rollouts, rewards_B, mask_BT, given.get("token_rewards_BT"))
    if "states" in needs:
        given["state_BK"] = state_column(rollouts)
    if apart:
        given |= _apart(rollouts, apart)
    scored = [_known(rollout, apart or {}) for rollout in rollouts]
    return RolloutBatch(
        rewards_B=rewards_B,
        group_B=torch.tensor(_compared(rollouts)),
        mask_BT=mask_BT,
        truncated_B=torch.tensor([rollout.truncated for rollout in rollouts]),
        scored_B=None if all(scored) else torch.tensor(scored),
        foreign_B=_foreign(rollouts),
        **given,
    )


def _compared(rollouts: Sequence[Rollout]) -> list[int]:
    """A number for those that are compared with each other: the group's, where it is all of it."""
    if not any(rollout.peers for rollout in rollouts):
        return [rollout.group for rollout in rollouts]
    numbers: dict[tuple[int, str], int] = {}
    return [numbers.setdefault((r.group, r.peers), len(numbers)) for r in rollouts]


def _apart(rollouts: Sequence[Rollout], weights: Mapping[str, float]) -> dict[str, Tensor]:
    """The scores of some components as columns; 0 of a rollout of which one is not known."""
    rows = [
        [dict(rollout.components)[name] if _known(rollout, weights) else 0.0 for name in weights]
        for rollout in rollouts
    ]
    return {
        "rewards_BC": torch.tensor(rows, dtype=torch.float64),
        "weights_C": torch.tensor(list(weights.values()), dtype=torch.float64),
    }


def _known(rollout: Rollout, apart: Collection[str]) -> bool:
    """Tell whether the reward and the scores of these components are known.

    A component may have had no weight at the step that it was scored for, and have one now.
    """
    scores = dict(rollout.components)
    return rollout.judged and all(scores[name] is not None for name in apart)


def bearing_loss(samples: Sequence[Sequence[TrainSample | None]]) -> list[list[TrainSample]]:
    """The samples that bear loss, group by group, without the groups that have none."""
    groups = [[sample for sample in group if sample is not None] for group in samples]
    return [group for group in groups if group]


def with_advantages(
    groups: Sequence[Group], samples: Sequence[Sequence[TrainSample | None]]
) -> list[Group]:
    """The groups of a generation, each trained rollout with the advantage that was learned from.

    Args:
        groups: All groups, in the order in which they were drawn.
        samples: Those of `training_samples` of the trained ones among them.

    Returns:
        The same groups; a rollout that bears no loss or was not learned from has no advantages.

    """
    given = chain.from_iterable(samples)

    def credited(rollout: Rollout) -> Rollout:
        if not rollout.trained:
            return rollout
        sample = next(given)
        return rollout._replace(advantages=() if sample is None else sample.advantages)

    return [[credited(rollout) for rollout in group] for group in groups]


def rows_of(values_BT: Tensor, rollouts: Sequence[Rollout]) -> list[TokenValues]:
    """Cut the padding off left-aligned values.

    Args:
        values_BT: One number per drawn token; or ``[B, 1]``, one per rollout.
        rollouts: The B rollouts, whose numbers of drawn tokens are the lengths.

    Returns:
        A tuple per rollout: one number per drawn token, or a single one.

    """
    if values_BT.shape[1] == 1:
        return [(value,) for value in values_BT[:, 0].tolist()]
    lengths = [rollout.num_drawn for rollout in rollouts]
    return [tuple(row[:n]) for row, n in zip(values_BT.tolist(), lengths, strict=True)]
