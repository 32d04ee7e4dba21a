"""What an answer earns: named components, how they are combined, and which one says solved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from posttrain.learning.rewards.combines.base import Combine
from posttrain.learning.rewards.combines.registry import COMBINES
from posttrain.learning.rewards.combines.sum import SumCombine
from posttrain.learning.rewards.components.base import Answers, Component, Verify
from posttrain.learning.rewards.components.registry import COMPONENTS
from posttrain.learning.rewards.components.verifier import VerifierComponent
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import nearest
from posttrain.stage.slots import InSlot


@dataclass(frozen=True)
class Earned:
    """What one answer earned: three numbers that are never mixed up."""

    components: tuple[tuple[str, float | None], ...]
    """Each component's name and score; None where it could not be judged."""
    reward: float | None
    """What is learned from."""
    solved: bool | None
    """What counts as right: for the problem sampler, the yield and evaluation."""


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

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in (*self.combine.names(), *filter(None, [self.solved_by])):
            if name not in self.components:
                remedy = nearest(name, self.components) or "; add it to components"
                raise ValueError(f"there is no component '{name}'{remedy}")
        for name, part in self.components.items():
            if part.SCOPE not in ("answer", "group"):
                raise ValueError(
                    f"components.{name} scores every {part.SCOPE}, but an answer of this stage is"
                    " scored as a whole; take a component of scope answer or group"
                )
        if self.solved_by is None and not self._solvers():
            raise ValueError(
                "no component says by itself whether a problem is solved; set solved_by to one"
            )
        return self

    def earned(
        self, groups: Sequence[Answers], known: Verify, *, step: int, state: dict[str, Any]
    ) -> list[list[Earned]]:
        """Reward the answers of one round of sampling.

        Args:
            groups: The answers, problem by problem.
            known: Scores answers by their problems' own verifiers.
            step: 0-based step that they will be learned from in.
            state: What `combine` remembers; changed in place.

        Returns:
            What each answer earned, group by group, ``[P][G]``.

        """
        scores = {
            name: [score for group in part.score_all(groups, known) for score in group]
            for name, part in self.components.items()
        }
        rewards = self.combine.combine(scores, step=step, state=state)
        solved = scores[self.solved_by or self._solvers()[0]]
        found = iter(
            [
                Earned(
                    components=tuple((name, values[place]) for name, values in scores.items()),
                    reward=reward,
                    solved=None if score is None else score >= 1.0,
                )
                for place, (reward, score) in enumerate(zip(rewards, solved, strict=True))
            ]
        )
        return [[next(found) for _ in group.texts] for group in groups]

    def _solvers(self) -> list[str]:
        return [name for name, part in self.components.items() if part.SAYS_SOLVED]


@dataclass
class Rewarder:
    """A stack at work: what it asks verifiers with, and what its combination remembers."""

    stack: RewardStack
    known: Verify
    state: dict[str, Any] = field(default_factory=dict)

    def earned(self, groups: Sequence[Answers], *, step: int) -> list[list[Earned]]:
        """Reward the answers of one round of sampling for 0-based `step`, ``[P][G]``."""
        return self.stack.earned(groups, self.known, step=step, state=self.state)

    def state_dict(self) -> dict[str, Any]:
        """Return what the combination remembers."""
        return dict(self.state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.state = dict(state)
