"""New problems that a policy wrote from those of a step, and answers to them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from posttrain.learning.rl.exchanges.base import ExchangeRound
from posttrain.learning.rl.rollout import marked
from posttrain.learning.rollouts.limits import leaves_room

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rewards.config import RewardStack
    from posttrain.learning.rl.member import Member
    from posttrain.learning.rl.rollout import Group
    from posttrain.learning.rl.rollouter import Draft


def rewritten(
    creator: "Member", draft: "Draft", asks: Mapping[int, str]
) -> "tuple[list[Group], dict[int, Problem]]":
    """Have problems of a step rewritten.

    Args:
        creator: Who writes.
        draft: The step's problems.
        asks: What is read in place of a problem, by its place in the step, in order.

    Returns:
        What was written of each, and by their places the new problems that can be read: those of
        which there is a text, and behind it room for an answer.

    """
    from posttrain.learning.rollouts.scoring import make_prompts

    groups, _ = creator.replies(draft, _of_step(draft, asks, 1), purpose="creator")
    rows = [[row._replace(role=f"creator:{row.role}") for row in groups[place]] for place in asks]
    new = {
        place: replace(draft.problems[place], prompt=groups[place][0].text.strip())
        for place in asks
        if groups[place][0].text.strip()
    }
    bench = creator.state.rollouter.bench
    prompts = make_prompts(bench.tokenizer, list(new.values()))
    fits = [leaves_room(prompt, bench.engine.context_length) for prompt in prompts]
    return rows, {place: new[place] for place, fit in zip(new, fits, strict=True) if fit}


def answers_to(
    solver: "Member", draft: "Draft", new: "Mapping[int, Problem]", at: ExchangeRound
) -> "list[Group]":
    """Have new problems answered, each group paid as one to the new problem.

    Args:
        solver: Who answers, and learns from it.
        draft: The step's problems.
        new: What was made of some of them, by their places.
        at: The step.

    Returns:
        A group for each of the new problems, whose label nobody knows.

    """
    if not new:
        return []
    asks = {place: problem.prompt for place, problem in new.items()}
    groups, _ = solver.replies(
        draft, _of_step(draft, asks, at.config.group_size), purpose="evolved"
    )
    answers = [group for group in groups if group]
    paid = solver.rewarded(answers, step=at.step, problems=list(new.values()))
    return [marked(_unlabeled(group, at.config.reward), trained=True) for group in paid]


def without_label(
    scores: Sequence[tuple[str, float | None]], reward: "RewardStack"
) -> tuple[tuple[str, float | None], ...]:
    """Take out what only a label can say.

    Args:
        scores: Each component's name and score.
        reward: The components.

    Returns:
        The same, and None of each that says whether an answer is right, or reads one that does.

    """
    labeled: set[str] = set()
    for name in reward.order:
        if reward.components[name].SAYS_SOLVED or labeled.intersection(reward.read_by(name)):
            labeled.add(name)
    return tuple((name, None if name in labeled else score) for name, score in scores)


def _of_step(draft: "Draft", asks: Mapping[int, str], number: int) -> list[list[str]]:
    """What is read of each problem of a step, so many times; nothing of the others."""
    return [[asks[place]] * number if place in asks else [] for place in range(len(draft.problems))]


def _unlabeled(group: "Group", reward: "RewardStack") -> "Group":
    return [
        row._replace(
            role=f"evolved:{row.role}",
            solved=None,
            components=without_label(row.components, reward),
        )
        for row in group
    ]
