"""Rollouts with their credit, and the one place where they become padded tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from posttrain.learning.rl.rollout import Rollout


class Lesson(NamedTuple):
    """What the learner needs of one rollout: its tokens and, token by token, their credit.

    `returns` and `values` are empty where there is no critic, `old_logprobs` where the algorithm
    does not compare with the policy before the first update.
    """

    token_ids: tuple[int, ...]
    drawn: tuple[bool, ...]
    """True at the drawn ones of all tokens."""
    logprobs: tuple[float, ...]
    policy_version: int
    advantages: tuple[float, ...]
    returns: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    old_logprobs: tuple[float, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Of what was read and what was drawn."""
        return len(self.token_ids)

    def plain(self) -> dict[str, Any]:
        """Return plain values by name, for a checkpoint."""
        return self._asdict()

    @classmethod
    def from_plain(cls, row: Mapping[str, Any]) -> "Lesson":
        """Return what `plain` was given."""
        return cls(**row)

    @classmethod
    def of(cls, rollout: Rollout, advantages: Sequence[float], **more: Sequence[float]) -> "Lesson":
        """A rollout with the advantage of each of its drawn tokens."""
        return cls(
            rollout.token_ids,
            tuple(rollout.drawn),
            rollout.logprobs,
            rollout.policy_version,
            tuple(advantages),
            **{name: tuple(values) for name, values in more.items()},
        )


@dataclass(frozen=True)
class LessonBatch:
    """Lessons as right-padded tensors; entry `[b, t]` belongs to token t of rollout b."""

    input_ids_BT: Tensor
    mask_BT: Tensor
    """True at the tokens that the policy drew; everything below is 0 where it is False."""
    sampled_logprobs_BT: Tensor
    advantages_BT: Tensor
    position_BT: Tensor
    """Where between sampler (0) and present policy (1) the policy before the updates was;
    ``[B, 1]``, one number per rollout."""
    returns_BT: Tensor | None = None
    values_BT: Tensor | None = None
    old_logprobs_BT: Tensor | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens that bear loss."""
        return int(self.mask_BT.sum())


def collate(
    lessons: Sequence[Lesson], *, pad: int, device: str, positions: Sequence[float] = ()
) -> LessonBatch:
    """Pad and mask; a column that no lesson has is None."""
    end_B = np.array([lesson.num_tokens for lesson in lessons])
    place_T = np.arange(end_B.max())
    inside_BT = place_T < end_B[:, None]
    mask_BT = np.zeros(inside_BT.shape, np.bool_)
    mask_BT[inside_BT] = np.fromiter(chain.from_iterable(each.drawn for each in lessons), np.bool_)

    def tokens(columns: Sequence[Sequence[float]]) -> Tensor:
        return _padded(columns, mask_BT, 0.0, np.float32).to(device)

    def optional(columns: Sequence[Sequence[float]]) -> Tensor | None:
        return tokens(columns) if all(columns) else None

    ids = [lesson.token_ids for lesson in lessons]
    where_B = torch.tensor(positions or [0.0] * len(lessons), device=device)
    return LessonBatch(
        input_ids_BT=_padded(ids, inside_BT, pad, np.int64).to(device),
        mask_BT=torch.from_numpy(mask_BT).to(device),
        sampled_logprobs_BT=tokens([lesson.logprobs for lesson in lessons]),
        advantages_BT=tokens([lesson.advantages for lesson in lessons]),
        position_BT=where_B[:, None],
        returns_BT=optional([lesson.returns for lesson in lessons]),
        values_BT=optional([lesson.values for lesson in lessons]),
        old_logprobs_BT=optional([lesson.old_logprobs for lesson in lessons]),
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
