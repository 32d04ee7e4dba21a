"""Stored successes that a policy learns from again, turn by turn, by how sure it is of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, compress
from random import Random
from typing import Any, NamedTuple

from posttrain.learning.rl.batch import TrainSample
from posttrain.learning.rl.rollout import Rollout

_BY_TOKEN = (
    *("logprobs", "advantages", "returns", "values", "old_logprobs", "weights", "versions"),
    *("taught", "valued"),
)
"""Columns of a sample that have a number for each drawn token."""

LogprobsOf = Callable[[Sequence[Rollout]], Sequence[Sequence[float]]]
"""Log-probabilities of the drawn tokens of some rows, by the policy as it is now, in nats."""


class Recalled(NamedTuple):
    """A stored episode that the policy learns from again."""

    rows: list[Rollout]
    """What a role did in it: one segment, or several."""
    taught: list[tuple[bool, ...]]
    """For each row the drawn tokens that bear loss."""

    @classmethod
    def whole(cls, rows: list[Rollout]) -> "Recalled":
        """An episode of which everything is learned from."""
        return cls(rows, [(True,) * row.num_drawn for row in rows])

    @property
    def num_turns(self) -> int:
        """Turns that bear loss."""
        return sum(
            tokens[begin]
            for row, tokens in zip(self.rows, self.taught, strict=True)
            if tokens
            for begin in accumulate(row.drawn_by_turn[:-1], initial=0)
        )


def familiar(
    earlier: Sequence[list[Rollout]],
    *,
    bounds: tuple[float, float],
    most: int,
    draw: Random,
    logprobs_of: LogprobsOf,
) -> list[Recalled]:
    """Draw stored successes, without replacement, and choose their turns.

    The geometric mean of the probabilities of a turn's tokens is `1 / perplexity`. The policy is
    asked for no more episodes than are needed. Source: WebRL, arXiv 2411.02337, section 2.1, Actor
    Confidence Filtering.

    Args:
        earlier: Stored episodes of earlier steps; those that earned nothing are left out.
        bounds: Least and largest `1 / perplexity` of a turn that is learned from.
        most: Episodes that are wanted.
        draw: Where all chance comes from.
        logprobs_of: Asks the present policy.

    Returns:
        At most so many, each with a turn within the bounds.

    """
    successes = [rows for rows in earlier if (rows[-1].reward or 0.0) > 0]
    draw.shuffle(successes)
    found: list[Recalled] = []
    for begin in range(0, len(successes), most):
        part = successes[begin : begin + most]
        logprobs = iter(logprobs_of([row for rows in part for row in rows]))
        looked_at = [
            Recalled(rows, [familiar_tokens(row, next(logprobs), bounds=bounds) for row in rows])
            for rows in part
        ]
        found += [each for each in looked_at if any(map(any, each.taught))]
        if len(found) >= most:
            break
    return found[:most]


def familiar_tokens(
    row: Rollout, logprobs: Sequence[float], *, bounds: tuple[float, float]
) -> tuple[bool, ...]:
    """Tell which drawn tokens are of turns whose `1 / perplexity` lies within bounds.

    Args:
        row: A segment.
        logprobs: Of its drawn tokens, in nats.
        bounds: Least and largest, both included.

    Returns:
        True or false for each drawn token.

    """
    found: list[bool] = []
    place = 0
    for count in row.drawn_by_turn:
        likely = math.exp(math.fsum(logprobs[place : place + count]) / count)
        found += [bounds[0] <= likely <= bounds[1]] * count
        place += count
    return tuple(found)


def only(sample: TrainSample, taught: Sequence[bool]) -> TrainSample:
    """Let some of the drawn tokens of a sample bear loss, and take the others as read.

    Args:
        sample: With all of its columns.
        taught: True or false for each drawn token.

    Returns:
        The sample itself where all of them do.

    """
    if all(taught):
        return sample
    each = iter(taught)
    kept: dict[str, Any] = {"drawn": tuple(drawn and next(each) for drawn in sample.drawn)}
    for name in (*_BY_TOKEN, "author_logprobs"):
        values = getattr(sample, name)
        # One number stands for all tokens, and none for a column that there is not.
        kept[name] = tuple(compress(values, taught)) if len(values) > 1 else values
    return replace(sample, **kept)
