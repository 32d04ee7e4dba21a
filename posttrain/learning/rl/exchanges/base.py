"""The slot of the exchanges: what a part of it implements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, model_validator

from posttrain.stage.errors import UserError
from posttrain.stage.part_checks import check_declared
from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import Part, name_of

if TYPE_CHECKING:
    from posttrain.learning.rewards.config import RewardStack
    from posttrain.learning.rl.config import RlConfig
    from posttrain.learning.rl.generation import Generation
    from posttrain.learning.rl.member import Member
    from posttrain.learning.rl.rollout import Rollout

MOST_POLICIES = 64
"""Policies of one stage: all of them are in memory."""


@dataclass(frozen=True)
class ExchangeRound:
    """A step of several policies, before anything was drawn for it."""

    step: int
    """0-based; all policies have learned from so many."""
    config: "RlConfig"
    """The numbers of the step, which are those of every policy."""
    seed: int
    """Of the step: what is drawn by chance depends on it and on what it is for."""
    state: dict[str, Any] = field(default_factory=dict)
    """What the exchange remembers from one step to the next: plain values, empty at first. It may
    be changed in place, and is in the checkpoint."""
    measured: dict[str, float] = field(default_factory=dict)
    """Takes what the exchange measures of the step, of the names that its METRICS declares."""


class Exchange(Part, Schedulable):
    """What several policies that are trained together give each other in a step.

    Every policy has a learner, an optimizer, a reward and draws of its own; an exchange says what
    each of them learns from.
    """

    METRICS: ClassVar[Mapping[str, str]] = {}
    """What it measures of a step, with a description; in the curve as ``rl/exchange_<name>``."""
    LEAST: ClassVar[int] = 2
    """Fewest policies."""
    MOST: ClassVar[int] = MOST_POLICIES
    """Most policies."""
    HEARD: ClassVar[bool] = True
    """False where no policy answers a problem as it is, so that a problem sampler hears of none."""
    FIXED: ClassVar[frozenset[str]] = frozenset({"policies"})

    policies: int = Field(default=2, ge=1, le=MOST_POLICIES)
    """Policies in all: the first, those that are connected, and copies of the first."""

    @model_validator(mode="after")
    def _as_many_as_it_takes(self) -> Self:
        if not self.LEAST <= self.policies <= self.MOST:
            takes = f"{self.LEAST}" if self.LEAST == self.MOST else f"at least {self.LEAST}"
            raise ValueError(
                f"policies is {self.policies}, and exchange {self.kind} takes {takes}; correct it"
            )
        return self

    def generations(self, members: "Sequence[Member]", at: ExchangeRound) -> "Sequence[Generation]":
        """Make what each policy learns from in a step.

        What is drawn may depend on the policies, the round and its state alone, so that a resumed
        run draws the same. A rollout says by `origin` which policy wrote it, where that is not the
        one that learns from it, and by `role` what it was in the exchange.

        Args:
            members: The policies, the first being the one that the stage hands on.
            at: The step.

        Returns:
            All groups of each policy, in the order of the policies; those that it learns from are
            marked.

        """
        raise NotImplementedError


def exchanged(
    exchange: Exchange, members: "Sequence[Member]", at: ExchangeRound
) -> "list[Generation]":
    """Ask an exchange what each policy learns from, and check what it gives.

    Args:
        exchange: With its schedules applied.
        members: The policies.
        at: The step.

    Returns:
        A generation for each policy.

    Raises:
        UserError: There are more or fewer, or it measures what it did not declare.

    """
    made = list(exchange.generations(members, at))
    if len(made) != len(members):
        raise UserError(
            f"coevolve: {name_of(exchange)}: `generations` was given {len(members)} policies and"
            f" gave {len(made)} generations; let it give one for each"
        )
    check_declared(at.measured, exchange.METRICS, part=name_of(exchange))
    return made


def can_be_judged(row: "Rollout", reward: "RewardStack") -> bool:
    """Tell whether an exchange may pay a rollout that the reward itself was not asked about.

    Args:
        row: What a policy wrote.
        reward: Of the step; says what becomes of what was cut off.

    Returns:
        False where it broke, or was cut off and the reward drops such.

    """
    return not row.broke and not (reward.truncated == "dropped" and row.truncated)
