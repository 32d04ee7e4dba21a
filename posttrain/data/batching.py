"""Rows of token ids, and which of them make up each optimiser step.

Batches hold rows of similar length, so that hardly any compute goes into padding: rows are
shuffled, sorted by length within windows, cut by a token budget, and the batches are shuffled. The
whole plan is a pure function of the lengths and the seed: a step number says where training is.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from posttrain.data.templates import encode_completions, encode_prompts
from posttrain.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WINDOW = 8192


class MicroBatch(Protocol):
    """What one forward pass takes, with the number of units (tokens, pairs) that its loss sums."""

    @property
    def num_units(self) -> int:
        """Loss-bearing units; their total over a step is the loss's denominator."""
        ...

    def to(self, device: str) -> Self:
        """The same batch on `device`."""
        ...


AnyBatch = TypeVar("AnyBatch", bound=MicroBatch)


@dataclass(frozen=True)
class Batches(Generic[AnyBatch]):
    """The micro-batches of every optimiser step, made when they are asked for."""

    steps: Sequence[Sequence[int]]
    lengths: Sequence[int]
    collate: Callable[[Sequence[int]], AnyBatch]
    micro_batch_tokens: int | None = None

    def micro_batches(self, step: int) -> list[AnyBatch]:
        """The parts of 0-based `step`; their gradients add up to the whole batch's."""
        rows = self.steps[step]
        if self.micro_batch_tokens is None:
            return [self.collate(rows)]
        parts = length_buckets(rows, self.lengths, self.micro_batch_tokens)
        return [self.collate(part) for part in parts]


@dataclass(frozen=True)
class TokenRow:
    """A prompt and its completion as one sequence; `start` is the first token that bears loss."""

    ids: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class TokenBatch:
    """Right-padded rows; `wanted_BT` marks the tokens that bear loss, `num_units` of them."""

    input_ids_BT: Tensor
    wanted_BT: Tensor
    num_units: int

    def to(self, device: str) -> "TokenBatch":
        """The same batch on `device`."""
        return TokenBatch(self.input_ids_BT.to(device), self.wanted_BT.to(device), self.num_units)


def encode_rows(
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[str],
    texts: Sequence[str],
    *,
    mask_prompts: bool = True,
) -> list[TokenRow]:
    """One row per prompt and completion; unmasked, all tokens but the first bear loss."""
    pairs = zip(
        encode_prompts(tokenizer, prompts), encode_completions(tokenizer, texts), strict=True
    )
    return [
        TokenRow((*prompt, *completion), start=len(prompt) if mask_prompts else 1)
        for prompt, completion in pairs
    ]


def check_rows(rows: Sequence[TokenRow], *, num_embeddings: int) -> None:
    """Refuse, before the first step, rows that a model could not learn from."""
    if not rows:
        raise UserError("there is no row to train on; see what the stage before dropped, and why")
    for index, row in enumerate(rows):
        if max(row.ids) >= num_embeddings:
            raise UserError(
                f"row {index} holds token {max(row.ids)}, but the model embeds {num_embeddings}; "
                "take model and tokenizer from one checkpoint"
            )
        if not 1 <= row.start < len(row.ids):
            raise UserError(f"row {index} has no token that bears loss; drop empty completions")


class TokenTable:
    """Token rows laid end to end, so that a batch is one gather."""

    def __init__(self, rows: Sequence[TokenRow], *, pad: int) -> None:
        self._flat = torch.tensor([token for row in rows for token in row.ids])
        self._length_N = torch.tensor([len(row.ids) for row in rows])
        self._start_N = torch.tensor([row.start for row in rows])
        self._offset_N = self._length_N.cumsum(0) - self._length_N
        self._pad = pad

    def batch(self, part: Sequence[int]) -> TokenBatch:
        """The rows of these indices, padded on the right to the longest."""
        rows_B = torch.tensor(part)
        length_B, start_B = self._length_N[rows_B], self._start_N[rows_B]
        positions_T = torch.arange(int(length_B.max()))
        inside_BT = positions_T < length_B[:, None]
        places_BT = (self._offset_N[rows_B][:, None] + positions_T).where(inside_BT, 0)
        input_ids_BT = self._flat[places_BT].where(inside_BT, self._pad)
        wanted_BT = inside_BT & (positions_T >= start_B[:, None])
        return TokenBatch(input_ids_BT, wanted_BT, int((length_B - start_B).sum()))


def plan_steps(
    lengths: Sequence[int],
    *,
    batch_tokens: int,
    epochs: float,
    seed: int,
    groups: Sequence[str] | None = None,
    mixture: Mapping[str, float] | None = None,
) -> list[list[int]]:
    """Row indices of every optimiser step.

    Without `mixture` an epoch is each row once. With it, an epoch is as many tokens as the rows
    hold, `mixture[group]` of them (a share of the total) from each group, whose rows come round
    again as often as that takes.
    """
    steps: list[list[int]] = []
    streams = _streams(lengths, groups, mixture, seed)
    for epoch in range(math.ceil(epochs)):
        shuffle = random.Random(f"{seed}:order:{epoch}")
        rows = [index for stream in streams for index in stream.take_epoch()]
        shuffle.shuffle(rows)
        batches = length_buckets(rows, lengths, batch_tokens)
        shuffle.shuffle(batches)
        share = min(1.0, epochs - epoch)
        steps += batches[: max(1, round(share * len(batches)))]
    return steps


def pad_rows(rows: Sequence[Sequence[int]], *, pad: int) -> tuple[Tensor, Tensor]:
    """Right-padded ids ``[B, T]`` and the index of each row's last token that is not padding.

    transformers pools at the last id that differs from the pad id; so do we, also where a
    tokenizer uses one id for padding and for the end.
    """
    input_ids_BT = pad_sequence(
        [torch.tensor(row) for row in rows], batch_first=True, padding_value=pad
    )
    positions_T = torch.arange(input_ids_BT.shape[1])
    return input_ids_BT, ((input_ids_BT != pad) * positions_T).argmax(-1)


def length_buckets(rows: Sequence[int], lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Cut rows into batches of similar length, each at most `budget` padded tokens (or one row)."""
    batches: list[list[int]] = []
    for begin in range(0, len(rows), WINDOW):
        batch: list[int] = []
        for row in sorted(rows[begin : begin + WINDOW], key=lambda index: lengths[index]):
            if batch and lengths[row] * (len(batch) + 1) > budget:
                batches.append(batch)
                batch = []
            batch.append(row)
        batches.append(batch)
    return batches


class _Stream:
    """Rows of one group in seeded order, over and over; an epoch takes `quota` tokens."""

    def __init__(
        self, rows: Sequence[int], lengths: Sequence[int], quota: float | None, seed: str
    ) -> None:
        self._rows = list(rows)
        self._lengths = lengths
        self._quota = quota
        self._random = random.Random(seed)
        self._ahead: list[int] = []
        self._owed = 0.0

    def take_epoch(self) -> list[int]:
        """The rows of the next epoch."""
        if self._quota is None:
            return list(self._rows)
        self._owed += self._quota
        taken: list[int] = []
        while self._owed > 0:
            if not self._ahead:
                self._ahead = list(self._rows)
                self._random.shuffle(self._ahead)
            taken.append(self._ahead.pop())
            self._owed -= self._lengths[taken[-1]]
        return taken


def _streams(
    lengths: Sequence[int],
    groups: Sequence[str] | None,
    mixture: Mapping[str, float] | None,
    seed: int,
) -> list[_Stream]:
    if not mixture:
        return [_Stream(range(len(lengths)), lengths, None, "")]
    if groups is None:
        raise ValueError("a mixture needs the group of every row")
    members: dict[str, list[int]] = {name: [] for name in mixture}
    for index, group in enumerate(groups):
        if group in members:
            members[group].append(index)
    empty = [name for name, rows in members.items() if not rows]
    if empty:
        known = ", ".join(sorted(set(groups)))
        raise UserError(f"mixture names '{empty[0]}', which has no row; the sources are: {known}")
    unit = sum(lengths) / sum(mixture.values())
    return [
        _Stream(members[name], lengths, mixture[name] * unit, f"{seed}:mixture:{name}")
        for name in sorted(mixture)
    ]
