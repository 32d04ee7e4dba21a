"""The slot of the branchings: what a part of it implements."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from posttrain.learning.episodes.episode import Segment

Entropies = Callable[["Sequence[Segment]", int], list[tuple[float, ...]]]
"""Of segments, and of how many tokens: the policy's entropy at each of the first so many tokens of
what was drawn last, as a share of the largest, log V."""


class Standing(NamedTuple):
    """An episode that goes on: the policy spoke last, and was answered."""

    place: int
    """In the group."""
    turns: int
    """That it has had so far."""
    entropies: tuple[tuple[float, ...], ...]
    """By turn of the policy, at the first tokens of each: from 0, where one token is sure, to 1."""


class Branching(Part):
    """Where episodes of a group begin inside another one, behind an answer of the environment.

    A branch shares what was said until then, and is an episode like any other: it has a place in
    its group, and draws of its own. So many are played of a problem as a group has, and not more.
    Where nobody of a problem speaks any more and there is still room, one is begun afresh.
    """

    @property
    @abstractmethod
    def tokens(self) -> int:
        """Tokens of each turn at which entropies are asked; 0 asks for none."""

    def beyond_processes(self, processes: int) -> str | None:
        """Say that entropies are the whole policy's; see `StageConfig.beyond_processes`."""
        if processes == 1 or not self.tokens:
            return None
        return (
            f"branching {self.kind} asks the policy how unsure it is, and several processes have a"
            " part of it each; leave resources.processes out"
        )

    @abstractmethod
    def begins(self, group_size: int) -> int:
        """Return how many episodes of a problem begin at once, at least one."""

    @abstractmethod
    def branches(self, standing: Sequence[Standing], room: int, draw: Random) -> Sequence[int]:
        """Choose from which episodes of a problem others branch off in this round.

        Args:
            standing: Those that may be branched from, in the order of their places; none twice.
            room: Most branches.
            draw: Where all chance comes from.

        Returns:
            Places in `standing`, one for each branch.

        """


class Forks(NamedTuple):
    """A branching at work."""

    branching: Branching
    entropies: Entropies
    """Of the policy that plays."""
