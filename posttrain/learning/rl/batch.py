"""Rollouts as what is learned from: samples with their advantages, and as padded tensors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from posttrain.data.routed_rows import RoutedRows
from posttrain.learning.algorithms.batches import PolicyBatch
from posttrain.learning.rl.rollout import Group, Rollout

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
    author_logprobs: TokenValues = ()
    """Of who wrote it, where that is not the policy; 0 at each token where nobody knows."""
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
    taught: tuple[bool, ...] = ()
    """Which drawn tokens bear the policy's loss; none where all do."""
    valued: tuple[bool, ...] = ()
    """Which drawn tokens bear the critic's loss; none where all do."""
    entropies: TokenValues = ()
    """Of the policy before the first update, where they are kept; nothing is learned from them."""

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

    The mask is of the drawn tokens that bear the policy's loss. All but `input_ids_BT`, and what is
    the critic's, is 0 where it is false.
    """

    input_ids_BT: Tensor
    returns_BT: Tensor | None = None
    values_BT: Tensor | None = None
    valued_BT: Tensor | None = None
    """The tokens that bear the critic's loss, where these are others."""
    vocabulary_logprobs_BT: Tensor | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens that bear loss."""
        return int(self.mask_BT.sum())

    def routed(self) -> RoutedRows:
        """Give the tokens as a router's loss takes them; see `RouterLoss`."""
        return RoutedRows(self.input_ids_BT, self.mask_BT)

    def for_critic(self) -> Self:
        """Return the same batch, masked to the tokens that bear the critic's loss."""
        return self if self.valued_BT is None else replace(self, mask_BT=self.valued_BT)


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
    taught_BT, valued_BT = (
        _bearing(rows, mask_BT, device)
        for rows in ([each.taught for each in samples], [each.valued for each in samples])
    )

    def of_critic(rows: Sequence[TokenValues]) -> Tensor | None:
        return _padded(rows, mask_BT, 0.0, np.float32).to(device) if all(rows) else None

    def tokens(rows: Sequence[TokenValues]) -> Tensor:
        laid_BT = _padded(rows, mask_BT, 0.0, np.float32).to(device)
        return laid_BT if taught_BT is None else torch.where(taught_BT, laid_BT, 0.0)

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
    foreign = [sample.foreign for sample in samples]
    return TrainBatch(
        input_ids_BT=_padded(ids, inside_BT, pad, np.int64).to(device),
        mask_BT=torch.from_numpy(mask_BT).to(device) if taught_BT is None else taught_BT,
        sampled_logprobs_BT=tokens([sample.logprobs for sample in samples]),
        advantages_BT=advantages_BT,
        position_BT=shared(positions or [(0.0,)] * len(samples)),
        returns_BT=of_critic([sample.returns for sample in samples]),
        values_BT=of_critic([sample.values for sample in samples]),
        valued_BT=valued_BT,
        old_logprobs_BT=optional([sample.old_logprobs for sample in samples]),
        vocabulary_logprobs_BT=optional([sample.vocabulary_logprobs for sample in samples]),
        weights_BT=shared([sample.weights for sample in samples]),
        marks_KBT=torch.stack(marks) if marks else None,
        past_K2=past_K2,
        group_B=torch.tensor([sample.group for sample in samples], device=device),
        group_mean_B=numbers([sample.group_mean for sample in samples]),
        group_deviation_B=numbers([sample.group_deviation for sample in samples]),
        foreign_B=torch.tensor(foreign, device=device) if any(foreign) else None,
        author_logprobs_BT=_of_authors(samples, tokens),
    )


def _bearing(
    rows: Sequence[tuple[bool, ...]], drawn_BT: np.ndarray[Any, np.dtype[np.bool_]], device: str
) -> Tensor | None:
    """The tokens that bear a loss, `[B, T]`; None where all that were drawn do."""
    if not any(rows):
        return None
    counts = drawn_BT.sum(-1).tolist()
    full = [row or (True,) * count for row, count in zip(rows, counts, strict=True)]
    return _padded(full, drawn_BT, False, np.bool_).to(device)


def _of_authors(
    samples: Sequence[TrainSample], tokens: Callable[[Sequence[TokenValues]], Tensor]
) -> Tensor | None:
    """Log-probabilities by whoever wrote each token; None where the policy wrote all."""
    if not any(sample.foreign for sample in samples):
        return None
    return tokens([each.author_logprobs or each.logprobs for each in samples])


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


def bearing_loss(samples: Sequence[Sequence[TrainSample | None]]) -> list[list[TrainSample]]:
    """The samples that bear loss, group by group, without the groups that have none."""
    groups = [[sample for sample in group if sample is not None] for group in samples]
    return [group for group in groups if group]


def with_advantages(
    groups: Sequence[Group], samples: Sequence[Sequence[TrainSample | None]]
) -> list[Group]:
    """The groups of a generation, each trained rollout with the advantage that was learned from.

    Its entropies stand in it too, where they are kept.

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
        if sample is None:
            return rollout._replace(advantages=(), entropies=())
        return rollout._replace(advantages=sample.advantages, entropies=sample.entropies)

    return [[credited(rollout) for rollout in group] for group in groups]
