"""A pioneer answers, an observer answers behind it, and both are paid for both."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.rl.exchanges.base import Exchange, ExchangeRound

if TYPE_CHECKING:
    from posttrain.learning.rl.generation import Generation
    from posttrain.learning.rl.member import Member
    from posttrain.learning.rl.rollout import Group, Rollout

_PROMPT, _ANSWER = "{prompt}", "{answer}"


class Observer(Exchange):
    """Let a pioneer answer and an observer answer behind it, each paid the sum of both rewards.

    The observer reads the problem with the pioneer's answer, once for each of these. After so many
    steps the two exchange roles.
    """

    SOURCE = "Ma et al. 2024, arXiv 2410.06101, section 3; Harry67Hu/CORY at 710219f, cory.py"
    METRICS: ClassVar[Mapping[str, str]] = {
        "pioneer_reward": "mean reward of the pioneer's answers by themselves",
        "observer_reward": "mean reward of the observer's answers by themselves",
        "first_is_pioneer": "1 where the first policy is the pioneer, else 0",
        "unread": "share of the pioneer's answers that left the observer no room, and it not read",
    }
    LEAST: ClassVar[int] = 2
    MOST: ClassVar[int] = 2

    kind: Literal["observer"] = "observer"
    swap_every: int = Field(default=5, ge=0)
    """Steps after which pioneer and observer exchange roles; 0 leaves the first the pioneer."""
    template: str = "{prompt}\n{answer}\n{prompt}"
    """What the observer reads of a problem and the pioneer's answer to it."""

    @model_validator(mode="after")
    def _reads_both(self) -> Self:
        for part in (_PROMPT, _ANSWER):
            if part not in self.template:
                raise ValueError(
                    f"template has no {part}, so that the observer would not read it; write"
                    f" {_PROMPT} and {_ANSWER} into it"
                )
        return self

    def generations(self, members: "Sequence[Member]", at: ExchangeRound) -> "list[Generation]":
        """Let one answer, then the other; see `Exchange.generations`."""
        swapped = bool(self.swap_every) and at.step // self.swap_every % 2 == 1
        pioneer, observer = reversed(members) if swapped else members
        draft = pioneer.draft(at.step, at.config)
        answers = pioneer.rewarded(pioneer.answers(draft), step=at.step)
        read = [
            [self._read(problem.prompt, row.text) for row in group]
            for problem, group in zip(draft.problems, answers, strict=True)
        ]
        replies, full = observer.replies(draft, read, purpose="observer")
        replies = observer.rewarded(replies, step=at.step)
        at.measured.update(
            first_is_pioneer=float(not swapped),
            unread=full / sum(map(len, read)),
            **_means(pioneer_reward=answers, observer_reward=replies),
        )
        paid, paid_too = _summed(answers, replies), _summed(replies, answers)
        made = {
            pioneer.name: pioneer.of_step(paid, at.step, at.config),
            observer.name: observer.of_step(
                [_as_observer(group) for group in paid_too], at.step, at.config
            ),
        }
        return [made[member.name] for member in members]

    def _read(self, prompt: str, answer: str) -> str:
        # Not `format`: an answer may hold braces, and so may a problem.
        before, _, _ = self.template.partition(_ANSWER)
        behind = self.template[len(before) + len(_ANSWER) :]
        return before.replace(_PROMPT, prompt) + answer + behind.replace(_PROMPT, prompt)


def _means(**groups: "Sequence[Group]") -> dict[str, float]:
    """Mean reward by name, of those that could be judged."""
    found = {
        name: [row.reward for group in each for row in group if row.reward is not None]
        for name, each in groups.items()
    }
    return {name: fmean(rewards) for name, rewards in found.items() if rewards}


def _summed(own: "Sequence[Group]", others: "Sequence[Group]") -> "list[Group]":
    """Pay each rollout its own reward and that of the one beside it."""
    return [
        [_paid_both(row, other) for row, other in zip(group, beside, strict=True)]
        for group, beside in zip(own, others, strict=True)
    ]


def _paid_both(row: "Rollout", other: "Rollout") -> "Rollout":
    """Nothing where one of the two could not be judged: the sum is not known."""
    known = row.reward is not None and other.reward is not None
    return row._replace(reward=row.reward + other.reward if known else None)  # type: ignore[operator]


def _as_observer(group: "Group") -> "Group":
    return [row._replace(role=f"observer:{row.role}") for row in group]
