"""Which rows make up each optimizer step.

Batches hold rows of similar length, so that hardly any compute goes into padding: rows are
shuffled, sorted by length within windows, cut by a token budget, and the batches are shuffled.
Packed rows have no padding, and fill the budget up by best fit instead. Or the rows are cut in the
order of the table, for a curriculum that a stage before has laid. The
whole plan is a pure function of the lengths and the seed: a step number says where training is.
"""

import itertools
import math
import random
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed, shuffler

WINDOW = 8192


class MicroBatch(Protocol):
    """What one forward pass takes, with the number of units (tokens, pairs) that its loss sums."""

    @property
    def num_units(self) -> float:
        """Loss-bearing units; their total over a step is the loss's denominator."""
        ...

    def to(self, device: str) -> Self:
        """The same batch on `device`."""
        ...


AnyBatch = TypeVar("AnyBatch", bound=MicroBatch)


@dataclass(frozen=True)
class Batches(Generic[AnyBatch]):
    """The micro-batches of every optimizer step, made when they are asked for.

    A step with enough rows has `at_least` so many parts, for as many processes that share it.
    """

    steps: Sequence[Sequence[int]]
    lengths: Sequence[int]
    collate: Callable[[Sequence[int]], AnyBatch]
    micro_batch_tokens: int | None = None
    packed: bool = False
    at_least: int = 1

    def micro_batches(self, step: int) -> list[AnyBatch]:
        """The parts of 0-based `step`; their gradients add up to the whole batch's."""
        rows = self.steps[step]
        parts: list[Sequence[int]] = [rows]
        if self.micro_batch_tokens is not None:
            cut = best_fit if self.packed else length_buckets
            parts = [*cut(rows, self.lengths, self.micro_batch_tokens)]
        if len(parts) < self.at_least:
            parts = self._finer(parts)
        return [self.collate(part) for part in parts]

    def _finer(self, parts: list[Sequence[int]]) -> list[Sequence[int]]:
        """Halve the part that takes most until there are `at_least`, or one row in each."""
        while len(parts) < self.at_least and any(len(part) > 1 for part in parts):
            index = max(range(len(parts)), key=lambda i: (len(parts[i]) > 1, self._taken(parts[i])))
            part, middle = parts[index], (len(parts[index]) + 1) // 2
            parts = [*parts[:index], part[:middle], part[middle:], *parts[index + 1 :]]
        return parts

    def _taken(self, rows: Sequence[int]) -> int:
        """Tokens of a batch of these rows, its padding counted."""
        lengths = [self.lengths[row] for row in rows]
        return sum(lengths) if self.packed else max(lengths) * len(lengths)


@dataclass(frozen=True)
class Mixture:
    """Which group each row belongs to, and each group's share of the tokens."""

    groups: Sequence[str]
    shares: Mapping[str, float]


@dataclass(frozen=True)
class Paced:
    """Rows that come into the table's passes by and by: the first ones, or easy ones by chance."""

    share_at: Callable[[int, int], float]
    """Share of the rows that a pass takes, by the step at which it begins and its own number, both
    from 0."""
    ease: Sequence[float] | None = None
    """What each row is drawn in proportion to; None takes the first ones in the table's order."""
    seed: int = 0
    """Of the draws."""

    def take(self, rows: Sequence[int], *, step: int, number: int) -> list[int]:
        """Choose the rows of a pass.

        Drawn ones are drawn without replacement, as in the race of `WeightedStream.draw`.

        Args:
            rows: All of them, in the table's order.
            step: At which the pass begins.
            number: Of the pass.

        Returns:
            At least one of them, in the table's order.

        """
        count = max(1, round(self.share_at(step, number) * len(rows)))
        if self.ease is None:
            return list(rows[:count])
        draws = random.Random(purpose_seed(self.seed, "pace", number))
        finish = {row: draws.expovariate(1.0) / self.ease[row] for row in rows}
        taken = set(sorted(rows, key=finish.__getitem__)[:count])
        return [row for row in rows if row in taken]


def plan_steps(
    lengths: Sequence[int],
    *,
    batch_tokens: int,
    epochs: float,
    seed: int | None,
    num_steps: int | None = None,
    taken: Mixture | Paced | None = None,
    packed: bool = False,
) -> list[list[int]]:
    """Plan the rows of every optimizer step.

    Without a mixture an epoch is each row once. With one, an epoch is as many tokens as the rows
    hold, its share of them from each group, whose rows come round again as often as that takes.

    Args:
        lengths: Tokens of each row.
        batch_tokens: Most tokens of a step, padding counted; a longer row still makes a step.
        epochs: Passes over the rows; a fraction ends within a pass.
        seed: Shuffles the rows; None takes those of every epoch in the order in which they stand.
        num_steps: Steps to plan, as many passes as they take, in place of `epochs`.
        taken: What a pass takes: shares of groups, which are drawn and so want a seed, or some rows
            of the table; None for all of them.
        packed: Count no padding.

    Returns:
        Indices of rows, step by step.

    Raises:
        ValueError: There is a mixture and no seed.

    """
    mixture = taken if isinstance(taken, Mixture) else None
    paced = taken if isinstance(taken, Paced) else None
    if mixture is not None and seed is None:
        raise ValueError("a mixture draws its rows, so it needs a seed")
    ordered, shuffled = (end_to_end, best_fit) if packed else (padded_in_order, length_buckets)
    steps: list[list[int]] = []
    streams = _streams(lengths, mixture, seed)
    passes = itertools.count() if num_steps is not None else range(math.ceil(epochs))
    for epoch in passes:
        rows = [index for stream in streams for index in stream.take_epoch()]
        if paced is not None:
            rows = paced.take(rows, step=len(steps), number=epoch)
        if seed is None:
            batches = ordered(rows, lengths, batch_tokens)
        else:
            shuffle = shuffler(seed, "order", epoch)
            shuffle.shuffle(rows)
            batches = shuffled(rows, lengths, batch_tokens)
            shuffle.shuffle(batches)
        if num_steps is None:
            share = min(1.0, epochs - epoch)
            steps += batches[: max(1, round(share * len(batches)))]
        else:
            steps += batches[: num_steps - len(steps)]
            if len(steps) == num_steps:
                break
    return steps


def padded_in_order(rows: Sequence[int], lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Cut rows, in their order, into batches of at most `budget` padded tokens (or one row)."""
    batches: list[list[int]] = []
    longest = 0
    for row in rows:
        longest = max(longest, lengths[row])
        if not batches or longest * (len(batches[-1]) + 1) > budget:
            batches.append([])
            longest = lengths[row]
        batches[-1].append(row)
    return batches


def length_buckets(rows: Sequence[int], lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Cut rows into batches of similar length, each at most `budget` padded tokens (or one row)."""
    return [
        batch
        for begin in range(0, len(rows), WINDOW)
        for batch in padded_in_order(
            sorted(rows[begin : begin + WINDOW], key=lambda row: lengths[row]), lengths, budget
        )
    ]


def end_to_end(rows: Sequence[int], lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Cut rows, in their order, into batches of at most `budget` tokens (or one row)."""
    batches: list[list[int]] = []
    total = 0
    for row in rows:
        if not batches or total + lengths[row] > budget:
            batches.append([])
            total = 0
        batches[-1].append(row)
        total += lengths[row]
    return batches


def best_fit(rows: Sequence[int], lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Cut rows into batches of at most `budget` tokens (or one row) that leave little of it free.

    Best fit, the longest first, within windows of the rows: each goes to the fullest batch that has
    room for it.

    Source: as packing for language models, arXiv 2404.10830, section 3.

    >>> best_fit([0, 1, 2, 3], [5, 3, 6, 4], 9)
    [[2, 1], [0, 3]]

    Args:
        rows: Indices, in an order of chance.
        lengths: Tokens of each row, by index.
        budget: Tokens of a batch.

    Returns:
        Indices, batch by batch.

    """
    batches: list[list[int]] = []
    for begin in range(0, len(rows), WINDOW):
        # Room that is left and number of the batch, least room first.
        free: list[tuple[int, int]] = []
        window = rows[begin : begin + WINDOW]
        for row in sorted(window, key=lambda row: -lengths[row]):
            place = bisect_left(free, (lengths[row], -1))
            if place == len(free):
                free.append((max(budget, lengths[row]), len(batches)))
                batches.append([])
            room, batch = free.pop(place)
            batches[batch].append(row)
            insort(free, (room - lengths[row], batch))
    return batches


class _Stream:
    """Rows of one group in seeded order, over and over; an epoch takes `quota` tokens."""

    def __init__(
        self, rows: Sequence[int], lengths: Sequence[int], quota: float | None, seed: str
    ) -> None:
        self._rows = list(rows)
        self._lengths = lengths
        self._quota = quota
        self._random = shuffler(seed)
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
    mixture: Mixture | None,
    seed: int | None,
) -> list[_Stream]:
    if mixture is None:
        return [_Stream(range(len(lengths)), lengths, None, "")]
    shares = mixture.shares
    members: dict[str, list[int]] = {name: [] for name in shares}
    for index, group in enumerate(mixture.groups):
        if group in members:
            members[group].append(index)
    empty = [name for name, rows in members.items() if not rows]
    if empty:
        known = ", ".join(sorted(set(mixture.groups)))
        raise UserError(f"mixture names '{empty[0]}', which has no row; the sources are: {known}")
    unit = sum(lengths) / sum(shares.values())
    return [
        _Stream(members[name], lengths, shares[name] * unit, f"{seed}:mixture:{name}")
        for name in sorted(shares)
    ]
