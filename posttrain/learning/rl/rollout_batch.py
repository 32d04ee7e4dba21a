"""What rollouts earned as tensors, from which an algorithm takes advantages."""

from collections.abc import Collection, Mapping, Sequence
from itertools import compress

import torch
from torch import Tensor

from posttrain.learning.algorithms.advantages.base import Advantage
from posttrain.learning.algorithms.batches import RolloutBatch
from posttrain.learning.algorithms.credit_assignment import informative
from posttrain.learning.rewards.config import REWARD
from posttrain.learning.rl.batch import TokenValues
from posttrain.learning.rl.failures import errors_of_rl
from posttrain.learning.rl.rollout import Group, Rollout, wholes
from posttrain.learning.rl.turn_columns import state_column, turn_columns


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
        columns: One number per drawn token: `values`, `reference_logprobs`, `entropy`; and
            `sampled_logprobs`, where those of the rollouts are not meant.
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
        given.setdefault("sampled_logprobs_BT", padded([rollout.logprobs for rollout in rollouts]))
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
    if "windows" in needs:
        given["earlier_B"] = torch.tensor([rollout.earlier for rollout in rollouts])
        given["unfinished_B"] = torch.tensor([rollout.unfinished for rollout in rollouts])
    if apart:
        given |= _apart(rollouts, apart)
    scored = [_known(rollout, apart or {}) for rollout in rollouts]
    foreign = [rollout.foreign for rollout in rollouts]
    return RolloutBatch(
        rewards_B=rewards_B,
        group_B=torch.tensor(_compared(rollouts)),
        mask_BT=mask_BT,
        truncated_B=torch.tensor([rollout.truncated for rollout in rollouts]),
        scored_B=None if all(scored) else torch.tensor(scored),
        foreign_B=torch.tensor(foreign) if any(foreign) else None,
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
