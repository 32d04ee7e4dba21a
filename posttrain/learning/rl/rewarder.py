"""What rollouts earn by the components of the reward."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.components.base import Answers, Verify
from posttrain.learning.rewards.config import RewardStack
from posttrain.learning.rewards.port_models import PortModels
from posttrain.learning.rewards.stack import Earned, StackAtWork
from posttrain.learning.rl.rollout import Group, Rollout, as_one, parted, sides

if TYPE_CHECKING:
    from posttrain.learning.models.distributed.group import ProcessGroup


@dataclass
class Rewarder:
    """A reward at work: what it asks verifiers with, and what its parts remember."""

    stack: RewardStack
    known: Verify
    models: PortModels = field(default_factory=PortModels)
    work: StackAtWork = field(init=False)

    def __post_init__(self) -> None:
        self.work = StackAtWork(self.known, models=self.models)

    def use(self, stack: RewardStack, *, max_tokens: int | None) -> None:
        """Reward from now on as the config of a step says.

        Args:
            stack: With its schedules applied.
            max_tokens: Longest completion, in tokens; None where nobody knows.

        """
        self.stack, self.work.max_tokens = stack, max_tokens

    def rewarded(
        self, groups: Sequence[Group], problems: Sequence[Problem], *, step: int
    ) -> list[Group]:
        """Return the groups of one round of sampling, with what each rollout earned.

        One that goes on in a later step has earned nothing yet, and is compared with no other.

        Args:
            groups: Rollouts that have earned nothing yet.
            problems: The problem of each group.
            step: 0-based step that they will be learned from in.

        Returns:
            The same groups, in their order.

        Raises:
            UserError: A part gives something other than one finite number, or None, per rollout.

        """
        compared = [
            (number, side, problem)
            for number, (group, problem) in enumerate(zip(groups, problems, strict=True))
            for whole in sides(group)
            if (side := [places for places in whole if not group[places[0]].unfinished])
        ]
        if not compared:
            return [list(group) for group in groups]
        answers = [
            answers_of([[groups[number][at] for at in whole] for whole in side], problem)
            for number, side, problem in compared
        ]
        earned = self._earned(answers, step=step)
        made = [list(group) for group in groups]
        place = 0
        for number, side, _ in compared:
            for whole in side:
                rows = [groups[number][at] for at in whole]
                by_token = parted(earned.token_rewards[place], rows)
                for at, row, paid in zip(whole, rows, by_token, strict=True):
                    made[number][at] = row._replace(
                        components=tuple((name, v[place]) for name, v in earned.scores.items()),
                        reward=earned.rewards[place],
                        solved=earned.solved[place],
                        token_rewards=paid,
                    )
                place += 1
        return made

    def _earned(self, answers: Sequence[Answers], *, step: int) -> Earned:
        return self.work.earned(self.stack, answers, step=step)

    def measured(self) -> dict[str, float]:
        """Return what the combination measures of what it remembers, as a step's metrics."""
        return {f"reward/{name}": value for name, value in self.work.measured(self.stack).items()}

    def state_dict(self) -> dict[str, Any]:
        """Return what components and combination remember."""
        return dict(self.work.state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.work.state = dict(state)


@dataclass(kw_only=True)
class SharedRewarder(Rewarder):
    """The main process asks verifiers, models and endpoints, once for all.

    The others learn what came of it, and what components and combination remember.
    """

    group: "ProcessGroup"

    def _earned(self, answers: Sequence[Answers], *, step: int) -> Earned:
        found = None
        if self.group.is_main:
            found = super()._earned(answers, step=step), self.work.state
        earned: Earned
        earned, self.work.state = self.group.from_main(found)
        return earned


def answers_of(rows: Sequence[Sequence[Rollout]], problem: Problem) -> Answers:
    """Return what reward components see of a group.

    Args:
        rows: Of one role in one problem, the segments of each rollout.
        problem: The problem.

    Returns:
        Texts, lengths and tokens, in the order of the rollouts.

    """
    group = [as_one(each) for each in rows]
    return Answers(
        problem=problem,
        texts=tuple(rollout.text for rollout in group),
        lengths=tuple(rollout.num_drawn for rollout in group),
        truncated=tuple(rollout.truncated for rollout in group),
        failed=tuple(rollout.broke for rollout in group),
        token_ids=tuple(rollout.token_ids for rollout in group),
        drawn=tuple(tuple(rollout.drawn) for rollout in group),
        segments=tuple(tuple(len(row.token_ids) for row in each) for each in rows),
        turns=tuple(rollout.drawn_by_turn for rollout in group),
        earned=tuple(tuple(earned for earned, _ in rollout.turns) for rollout in group),
        role=group[0].role,
        logprobs=tuple(rollout.logprobs for rollout in group),
    )
