"""What one role did in one episode, as one rollout, whatever sequences it is learned from in."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import TypeVar

from posttrain.learning.curriculum.base import GroupResult
from posttrain.learning.episodes.environments.base import POLICY
from posttrain.learning.episodes.episode import Span
from posttrain.learning.rl.rollout import Group, Rollout

T = TypeVar("T")


def places_of_wholes(rollouts: Sequence[Rollout]) -> list[list[int]]:
    """Find the rows that belong together: the segments of a role in an episode, in their order.

    Args:
        rollouts: Rows of any groups.

    Returns:
        Places by whole, in the order in which each begins; one place each where no episode was cut
        into segments.

    """
    found: list[list[int]] = []
    begun: dict[tuple[int, str, str], list[int]] = {}
    for place, row in enumerate(rollouts):
        of = (row.group, row.episode, row.role)
        if row.segment == 0 or of not in begun:
            found.append([])
            begun[of] = found[-1]
        begun[of].append(place)
    return found


def wholes(group: Group) -> list[Rollout]:
    """Return the rollouts of a group with the segments of each episode and role joined."""
    return [as_one([group[place] for place in places]) for places in places_of_wholes(group)]


def result_of(group: Group, problem: int) -> GroupResult:
    """Say what became of a problem: by the role that is given it, and no other that the policy has.

    Args:
        group: Rollouts of one problem.
        problem: Place of the problem.

    Returns:
        What a problem sampler sees of it.

    """
    attempts = [whole for whole in wholes(group) if whole.role == POLICY]
    return GroupResult(
        problem=problem,
        rewards=tuple(rollout.reward for rollout in attempts),
        solved=tuple(rollout.solved for rollout in attempts),
        lengths=tuple(rollout.num_drawn for rollout in attempts),
        advantages=tuple(rollout.mean_advantage for rollout in attempts),
    )


def as_one(segments: Sequence[Rollout]) -> Rollout:
    """Join the segments of a role in an episode, one behind the other.

    What a later segment read again stands in it again, as read: the drawn tokens are each there
    once, in the order in which they were drawn.

    Args:
        segments: At least one; all share what they earned.

    Returns:
        The segment itself where there is one.

    """
    if len(segments) == 1:
        return segments[0]
    *_, last = segments
    alone = len({each.advantages for each in segments}) == 1 and len(last.advantages) <= 1
    return last._replace(
        token_ids=_chained(each.token_ids for each in segments),
        spans=_chained(_shifted(segments)),
        logprobs=_chained(each.logprobs for each in segments),
        versions=_chained(each.versions for each in segments),
        text="\n".join(each.text for each in segments if each.text),
        turns=_chained(each.turns for each in segments),
        token_rewards=_chained(each.token_rewards for each in segments),
        advantages=last.advantages if alone else _chained(map(_spread, segments)),
        segment=0,
    )


def parted(values: Sequence[T], segments: Sequence[Rollout]) -> list[tuple[T, ...]]:
    """Part what a whole has back among its segments.

    Args:
        values: One per drawn token of the whole, or one or none for all of it.
        segments: Of the whole, in their order.

    Returns:
        What each segment has; a number that all tokens share is each one's.

    Raises:
        ValueError: There is not one for every drawn token.

    """
    lengths = [each.num_drawn for each in segments]
    if len(values) <= 1:
        return [tuple(values)] * len(segments)
    if len(values) != sum(lengths):
        raise ValueError(f"{len(values)} numbers for {sum(lengths)} drawn tokens")
    return [tuple(values[a:b]) for a, b in pairwise(accumulate(lengths, initial=0))]


def of_wholes(rows: Sequence[Sequence[T]], places: Sequence[Sequence[int]]) -> list[tuple[T, ...]]:
    """Join what the rows of each whole have.

    Args:
        rows: Numbers of each row, one per drawn token.
        places: As `places_of_wholes` gives them.

    Returns:
        The numbers of each whole, in the order in which its tokens were drawn.

    """
    return [tuple(chain.from_iterable(rows[at] for at in each)) for each in places]


def by_row(
    values: Sequence[Sequence[T]], rollouts: Sequence[Rollout], places: Sequence[Sequence[int]]
) -> list[tuple[T, ...]]:
    """Give each row its part of what its whole has.

    Args:
        values: Numbers of each whole, as in `parted`.
        rollouts: The rows.
        places: As `places_of_wholes` gives them.

    Returns:
        The numbers of each row.

    """
    found: list[tuple[T, ...]] = [()] * len(rollouts)
    for whole, each in zip(values, places, strict=True):
        parts = parted(whole, [rollouts[at] for at in each])
        for at, part in zip(each, parts, strict=True):
            found[at] = part
    return found


def _chained(parts: "Iterator[Sequence[T]] | map[Sequence[T]]") -> tuple[T, ...]:
    return tuple(chain.from_iterable(parts))


def _spread(segment: Rollout) -> tuple[float, ...]:
    given = segment.advantages
    return given * segment.num_drawn if len(given) == 1 else given


def _shifted(segments: Sequence[Rollout]) -> Iterator[list[Span]]:
    tokens = turns = 0
    for each in segments:
        yield [Span(s.begin + tokens, s.end + tokens, s.turn + turns, s.drawn) for s in each.spans]
        tokens += len(each.token_ids)
        turns += len(each.versions)
