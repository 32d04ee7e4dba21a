"""What an answer earns: named components, how they are combined, and which one says solved."""

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import product
from math import isfinite
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from posttrain.learning.rewards.combines.base import Combine
from posttrain.learning.rewards.combines.registry import COMBINES
from posttrain.learning.rewards.combines.sum import SumCombine
from posttrain.learning.rewards.components.base import FAR, WITHIN, Component, Range
from posttrain.learning.rewards.components.registry import COMPONENTS
from posttrain.learning.rewards.components.verifier import VerifierComponent
from posttrain.learning.rewards.truncated import Truncated
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import nearest
from posttrain.stage.schedule import ScheduledNumber, schedules_in
from posttrain.stage.slots import InSlot

REWARD = "reward"
"""In place of a component's name: the reward itself, all components combined."""
_CORNERS = 6
"""Schedules of which all ends are tried with all ends of the others."""


class RewardStack(StageConfig):
    """Named components and how they become the number that is learned from."""

    components: Mapping[str, Annotated[Component, InSlot(COMPONENTS)]] = Field(
        default_factory=lambda: {"correct": VerifierComponent()}, min_length=1
    )
    """Name -> component: a kind's name, or a mapping with the kind and its settings."""
    combine: Annotated[Combine, InSlot(COMBINES)] = SumCombine()
    """How the components become one number."""
    solved_by: str | None = None
    """The component whose score of 1 says that a problem is solved; null for the first verifier."""
    filter_by: str | None = None
    """The component on whose scores a group has signal or not; null for what says solved, `reward`
    for the whole reward."""
    truncated: Truncated = "counts"
    """What becomes of an answer cut off at max_tokens: it counts as it stands, fails whatever it
    states (`fails`), counts but bears no loss (`masked`), or is not judged (`dropped`)."""
    bonus_may_outweigh: bool = False
    """Whether a wrong answer may be paid more than a right one for what is no correctness."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_names()
        self._refuse_scopes()
        if self.solved_by is None and not self._solvers():
            raise ValueError(
                "no component says by itself whether a problem is solved; set solved_by to one"
            )
        try:
            self.order  # noqa: B018 - asked for its error
        except CycleError as error:
            circle = " -> ".join(error.args[1])
            raise ValueError(
                f"components wait for each other: {circle}; take a `when`, or what one reads, away"
            ) from None
        if self.truncated == "fails":
            self._refuse_endless_failure()
        if not self.bonus_may_outweigh:
            self._refuse_heavy_bonus()
        return self

    @property
    def solver(self) -> str:
        """The component whose score of 1 says that a problem is solved."""
        return self.solved_by or self._solvers()[0]

    @property
    def filter(self) -> str:
        """The component that says whether a group has signal, or `REWARD`."""
        return self.filter_by or self.solver

    @property
    def order(self) -> Sequence[str]:
        """The components' names, each after those that it reads."""
        return tuple(
            TopologicalSorter({n: self.read_by(n) for n in self.components}).static_order()
        )

    @property
    def ports(self) -> Mapping[str, str]:
        """The ports whose models are asked, each with a component that does."""
        return {port: name for name, part in self.components.items() for port in part.ports()}

    @property
    def by_token(self) -> Mapping[str, float]:
        """The components that pay places within an answer, with their weights."""
        names = [name for name, part in self.components.items() if part.SCOPE in WITHIN]
        return (self.combine.by_token(names) or {}) if names else {}

    def read_by(self, name: str) -> list[str]:
        """Return the components that must be known before this one, in the recipe's order."""
        part = self.components[name]
        before = {*part.reads(), *filter(None, [part.when])}
        if "solved" in part.NEEDS:
            before.add(self.solver)
        return [other for other in self.components if other in before]

    def _check_names(self) -> None:
        """Refuse names that no component has, and a component of a name that means another."""
        named = [*self.combine.names(), *filter(None, [self.solved_by])]
        for part in self.components.values():
            named += [*part.reads(), *filter(None, [part.when])]
        if self.filter_by not in (None, REWARD):
            named.append(str(self.filter_by))
        for name in named:
            if name not in self.components:
                remedy = nearest(name, self.components) or "; add it to components"
                raise ValueError(f"there is no component '{name}'{remedy}")
        for name in self.components:
            if name == REWARD or not name.isidentifier():
                raise ValueError(
                    f"components.{name}: a component's name is a word of letters, digits and _,"
                    f" and not '{REWARD}', which means all of them; rename it"
                )

    def _refuse_scopes(self) -> None:
        """Refuse a score for every turn or token where it cannot be paid there."""
        for name, part in self.components.items():
            if part.SCOPE not in WITHIN:
                continue
            if self.combine.by_token([name]) is None:
                raise ValueError(
                    f"components.{name} scores every {part.SCOPE}, but combine {self.combine.kind}"
                    " takes one number for each answer; set combine to sum, or take a component of"
                    " scope answer or group"
                )
            if name == self.solved_by:
                raise ValueError(
                    f"solved_by: {name} scores every {part.SCOPE}, and no sum of these says that a"
                    " problem is solved; set it to a component of scope answer"
                )

    def _solvers(self) -> list[str]:
        return [name for name, part in self.components.items() if part.SAYS_SOLVED]

    def _refuse_endless_failure(self) -> None:
        """Refuse to fail what was cut off where the solver has no least score."""
        part = next(_at_the_ends(self)).components[self.solver]
        if not isfinite(part.bounds(solved=False)[0]):
            raise ValueError(
                f"truncated: fails gives an answer that was cut off the least score of"
                f" '{self.solver}', which has none; set solved_by to another component, or"
                " truncated to dropped"
            )

    def _refuse_heavy_bonus(self) -> None:
        """Refuse a stack that may pay a wrong answer more than a right one, at any schedule's end.

        Correctness is worth what the solver's score of 1 earns over its least: partial credit for
        a wrong answer counts as a bonus only where another component gives it.
        """
        for stack in _at_the_ends(self):
            right, wrong = stack._ends(solved=True), stack._ends(solved=False)
            # Where correctness pays nothing there is nothing to outweigh.
            if right is None or wrong is None or right == wrong or right[0] >= wrong[1]:
                continue
            raise ValueError(
                f"a wrong answer may earn {_told(wrong[1])} and a right one {_told(right[0])}, so"
                " that the"
                f" other components outweigh '{self.solver}'; lower their weights, give them"
                f" `when: {self.solver}`, or set bonus_may_outweigh to true"
            )

    def _ends(self, *, solved: bool) -> Range | None:
        """The least and the greatest reward of a right answer, or of a wrong one."""
        ranges: dict[str, Range] = {}
        for name in self.order:
            part = self.components[name]
            low, high = part.bounds(solved=solved)
            if name == self.solver:
                low = high = 1.0 if solved else low
            elif part.when is not None:
                opens = ranges[part.when]
                if opens[1] < 1.0:
                    low = high = 0.0
                elif opens[0] < 1.0:
                    low, high = min(low, 0.0), max(high, 0.0)
            # What has no end would swallow what correctness adds to it.
            ranges[name] = max(low, -FAR), min(high, FAR)
        return self.combine.bounds({name: ranges[name] for name in self.components})


def _told(end: float) -> str:
    return f"{end:g}" if abs(end) < FAR / 2 else "any number" if end > 0 else "less than any number"


def _at_the_ends(stack: RewardStack) -> Iterator[RewardStack]:
    """The stack with its schedules at their ends: all combinations of the first few.

    Of those beyond, all are at one end, or a single one of them is at the other.
    """
    found = [id(number) for _, number in schedules_in(stack)]
    first, beyond = found[:_CORNERS], found[_CORNERS:]
    others = [dict.fromkeys(beyond, end) for end in ((0, 1) if beyond else (1,))]
    others += [each | {name: 1 - each[name]} for each in others for name in beyond]
    for ends in product((0, 1), repeat=len(first)):
        for rest in others:
            yield _with_ends(stack, dict(zip(first, ends, strict=True)) | rest)


def _with_ends(value: Any, chosen: Mapping[int, int]) -> Any:
    """A value in which every schedule is the number at one of its ends."""
    if isinstance(value, ScheduledNumber):
        return float(value.end if chosen.get(id(value), 1) else value.start)
    if isinstance(value, StageConfig):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        changed = {name: _with_ends(each, chosen) for name, each in fields.items()}
        return value.model_copy(update=changed)
    if isinstance(value, Mapping):
        return {key: _with_ends(each, chosen) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_with_ends(each, chosen) for each in value)
    return value


def refuse_other_temperature(reward: RewardStack, temperature: object) -> None:
    """Refuse a component that compares log-probabilities at temperature 1 with others.

    Args:
        reward: What answers earn.
        temperature: That answers are drawn at, a number or a schedule.

    Raises:
        ValueError: With the remedy.

    """
    for name, component in reward.components.items():
        if "logprobs" in component.NEEDS and temperature != 1.0:
            raise ValueError(
                f"reward.components.{name}: {component.kind} holds what the policy drew with"
                " against another model at temperature 1; set temperature to 1"
            )
