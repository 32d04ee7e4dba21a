"""What another reward would have paid for stored rollouts."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, pstdev

import polars as pl

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.components.base import Verify
from posttrain.learning.rewards.port_models import PortModels
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.rewarder import Rewarder
from posttrain.learning.rl.rollout import Group, Rollout
from posttrain.learning.rl.store import stored_groups
from posttrain.stage.errors import UserError
from posttrain.stage.schedule import at


@dataclass(frozen=True)
class ComponentFigures:
    """One component of the other reward, or the reward itself, over all rollouts."""

    name: str
    mean: float | None
    """Of those that it judged; None where it judged none."""
    deviation: float | None
    """Population deviation of the same."""
    unjudged: float
    """Share that it could not judge."""
    correlation: float | None
    """Pearson's, with what was paid; None where one of the two is one number."""


@dataclass(frozen=True)
class Rescored:
    """What was paid, and what another reward would have paid."""

    num_rollouts: int
    num_groups: int
    paid: ComponentFigures
    """The reward that was learned from."""
    reward: ComponentFigures
    """The other one."""
    components: tuple[ComponentFigures, ...]
    solved: tuple[float | None, float | None]
    """Share that counted as right, and that would have counted."""
    turned: float | None
    """Of the pairs within a group that were paid differently, the share in another order now."""


def rescore(
    config: RlConfig,
    table: pl.DataFrame,
    problems: Mapping[str, Problem],
    *,
    verify: Verify,
    models: PortModels,
    report: Callable[[int], None] = lambda _: None,
) -> Rescored:
    """Pay stored rollouts by another reward; nothing is sampled and nothing is learned.

    All groups of a step are paid at once, in the order of the steps, so that what a component or a
    combination remembers is what it would have remembered. A weight that follows a metric stays as
    it begins.

    Args:
        config: Of a stage with the other reward.
        table: ROLLOUTS.
        problems: The problems of the rollouts, by id.
        verify: Scores answers by their problems' verifiers.
        models: What the reward's components ask.
        report: Called with the number of rollouts that are done, after each step.

    Returns:
        Figures of what was paid and would have been.

    Raises:
        UserError: There is no rollout, or the problem of one is not among the problems.

    """
    if table.is_empty():
        raise UserError("rescore: there are no rollouts in the table; name that of a run of rl")
    before: list[Rollout] = []
    after: list[Group] = []
    rewarder = Rewarder(config.reward, verify, models)
    for step, groups in stored_groups(table):
        asked = [_problem_of(group, problems) for group in groups]
        now = at(config, step - 1, {})
        rewarder.use(now.reward, max_tokens=now.limit)
        after += rewarder.rewarded(groups, asked, step=step - 1)
        before += [rollout for group in groups for rollout in group]
        report(len(before))
    made = [rollout for group in after for rollout in group]
    paid = [rollout.reward for rollout in before]
    rewards = [rollout.reward for rollout in made]
    columns = {
        name: [dict(rollout.components)[name] for rollout in made]
        for name in config.reward.components
    }
    sizes = [len(group) for group in after]
    return Rescored(
        num_rollouts=len(made),
        num_groups=len(after),
        paid=_figures("paid", paid, paid),
        reward=_figures("reward", rewards, paid),
        components=tuple(_figures(name, column, paid) for name, column in columns.items()),
        solved=(_share(before), _share(made)),
        turned=_turned(paid, rewards, sizes),
    )


def _problem_of(group: Group, problems: Mapping[str, Problem]) -> Problem:
    known = problems.get(group[0].problem_id)
    if known is None:
        raise UserError(
            f"rescore: problem {group[0].problem_id} of a rollout is not among the problems; name"
            " the table that the run practiced on as --problems"
        )
    return known


def _figures(
    name: str, column: Sequence[float | None], paid: Sequence[float | None]
) -> ComponentFigures:
    judged = [each for each in column if each is not None]
    return ComponentFigures(
        name,
        mean=fmean(judged) if judged else None,
        deviation=pstdev(judged) if judged else None,
        unjudged=1 - len(judged) / len(column),
        correlation=_correlation(column, paid),
    )


def _correlation(one: Sequence[float | None], other: Sequence[float | None]) -> float | None:
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    if not pairs:
        return None
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    spread = pstdev(first) * pstdev(second)
    if not spread:
        return None
    means = fmean(first), fmean(second)
    return math.fsum((a - means[0]) * (b - means[1]) for a, b in pairs) / len(pairs) / spread


def _share(rollouts: Sequence[Rollout]) -> float | None:
    judged = [rollout.solved for rollout in rollouts if rollout.solved is not None]
    return sum(judged) / len(judged) if judged else None


def _turned(
    paid: Sequence[float | None], rewards: Sequence[float | None], sizes: Sequence[int]
) -> float | None:
    told, turned, begin = 0, 0, 0
    for size in sizes:
        for i, j in combinations(range(begin, begin + size), 2):
            was, now = _order(paid[i], paid[j]), _order(rewards[i], rewards[j])
            if was and now is not None:
                told += 1
                turned += was != now
        begin += size
    return turned / told if told else None


def _order(one: float | None, other: float | None) -> int | None:
    return None if one is None or other is None else (one > other) - (one < other)
