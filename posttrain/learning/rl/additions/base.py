"""The slot of the additions: what a part of it implements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from pathlib import Path

    from posttrain.data.schemas import Problem
    from posttrain.learning.rl.producers.base import SamplingRound, Workbench
    from posttrain.learning.rl.rollout import Group


class Added(NamedTuple):
    """An answer that joins a group, as an answer to the problem as it stands before the others."""

    text: str
    """The answer."""
    origin: str
    """Who wrote it, such as `trace`; never `policy`."""
    read: tuple[str, ...] = ()
    """Ids of rows that it was made from, beside the problem."""
    token_ids: tuple[int, ...] = ()
    """Its tokens as its author drew them; none where they are those that the text is encoded as."""
    logprobs: tuple[float, ...] = ()
    """Of each of these tokens, by its author, in nats; none where nobody knows them."""


@dataclass(frozen=True)
class Joining:
    """What joins one group."""

    added: Sequence[Added] = ()
    replaced: Sequence[int] = ()
    """Places in the group of rollouts that are not learned from, as others stand for them."""
    best: int | None = None
    """So many join, those with the highest reward, the first of equals; None for all of them."""
    above: float | None = None
    """Only those join whose reward is above it; None for all of them."""


@dataclass(frozen=True)
class AdditionBench:
    """What an addition works with for the whole run."""

    work: "Workbench"
    """Draws from the policy, and rewards."""
    inputs: "Mapping[str, Path]" = field(default_factory=dict)
    """Artifacts of the stage by port."""


class AdditionAtWork:
    """A started addition. It has no state: what it gives follows from the step's rollouts, the
    policy and the seed of the round alone.
    """

    def join(
        self, groups: "Sequence[Group]", problems: "Sequence[Problem]", at: "SamplingRound"
    ) -> Sequence[Joining]:
        """Say what joins the groups of a step.

        Args:
            groups: Those that are learned from, rewarded and selected, [P].
            problems: Of the groups, in their order.
            at: Step, seed, and how to sample.

        Returns:
            For each group what joins it. It is rewarded as an answer to the problem, and stands
            behind the prompt that the others of the group were drawn behind.

        """
        raise NotImplementedError


class Addition(Part):
    """What is learned from in a group that the policy has not drawn as an answer to its problem."""

    KNOWS_AUTHORS: ClassVar[bool] = False
    """True where each answer comes with its author's log-probabilities."""

    @property
    def asks_policy(self) -> bool:
        """Whether what joins hangs on the policy; with `ahead`, the one that drew is gone then."""
        return True

    def ports(self) -> Sequence[str]:
        """Return the ports of the stage that it reads."""
        return ()

    def start(self, bench: AdditionBench) -> AdditionAtWork:
        """Begin a run."""
        raise NotImplementedError
