"""Rollouts with their advantages, and the one place where they become padded tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from posttrain.learning.algorithms.batches import PolicyBatch
from posttrain.learning.rl.rollout import Rollout

Row = tuple[float, ...]


@dataclass(frozen=True)
class TrainSample:
    """What the learner needs of one rollout: its tokens and, token by token, what they earned.

    A column that the algorithm has no use for is empty.
    """

    token_ids: tuple[int, ...]
    """What was read and what was drawn, in order."""
    drawn: tuple[bool, ...]
    """True at the drawn ones of all tokens."""
    logprobs: Row
    """Of the sampler, one per drawn token, in nats."""
    policy_version: int
    """Step whose policy drew it."""
    advantages: Row
    """One per drawn token, or a single one that all of them share."""
    returns: Row = ()
    """Targets of the critic's values."""
    values: Row = ()
    """The critic's values before the first update."""
    old_logprobs: Row = ()
    """Of the policy before the first update, where it is not the sampler's."""
    weights: Row = ()
    """Token weights that were fixed before the first update; one per drawn token, or one."""
    group: int = 0
    """Which of its step's groups it belongs to."""
    group_mean: float = 0.0
    """Mean reward of the whole group."""
    group_deviation: float = 0.0
    """Population deviation of the rewards of the whole group."""

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

    @property
    def num_tokens(self) -> int:
        """Tokens that bear loss."""
        return int(self.mask_BT.sum())


def collate(
    samples: Sequence[TrainSample], *, pad: int, device: str, positions: Sequence[float] = ()
) -> TrainBatch:
    """Pad and mask.

    Args:
        samples: What goes through the model together.
        pad: Id of the padding token.
        device: Where the tensors go.
        positions: Where between sampler (0) and present policy (1) the policy before the updates
            was, one number per sample; none means 0.

    Returns:
        The batch; a column that no sample has is None.

    """
    end_B = np.array([sample.num_tokens for sample in samples])
    place_T = np.arange(end_B.max())
    inside_BT = place_T < end_B[:, None]
    mask_BT = np.zeros(inside_BT.shape, np.bool_)
    mask_BT[inside_BT] = np.fromiter(chain.from_iterable(each.drawn for each in samples), np.bool_)

    def tokens(rows: Sequence[Row]) -> Tensor:
        return _padded(rows, mask_BT, 0.0, np.float32).to(device)

    def optional(rows: Sequence[Row]) -> Tensor | None:
        return tokens(rows) if all(rows) else None

    def shared(rows: Sequence[Row]) -> Tensor | None:
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
    return TrainBatch(
        input_ids_BT=_padded(ids, inside_BT, pad, np.int64).to(device),
        mask_BT=torch.from_numpy(mask_BT).to(device),
        sampled_logprobs_BT=tokens([sample.logprobs for sample in samples]),
        advantages_BT=advantages_BT,
        position_BT=numbers(positions or [0.0] * len(samples))[:, None],
        returns_BT=optional([sample.returns for sample in samples]),
        values_BT=optional([sample.values for sample in samples]),
        old_logprobs_BT=optional([sample.old_logprobs for sample in samples]),
        weights_BT=shared([sample.weights for sample in samples]),
        group_B=torch.tensor([sample.group for sample in samples], device=device),
        group_mean_B=numbers([sample.group_mean for sample in samples]),
        group_deviation_B=numbers([sample.group_deviation for sample in samples]),
    )


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
