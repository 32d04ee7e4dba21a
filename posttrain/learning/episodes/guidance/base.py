"""The slot of the guidance: what a part of it implements."""

from abc import abstractmethod
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.environments.base import Environment


class FailedTry(NamedTuple):
    """An episode that was judged, and not solved."""

    problem: "Problem"
    said: Sequence[tuple[str, str]]
    """Who said what behind the prompt, in order; the policy is `assistant`, and speaks last."""
    environment: "Environment"
    """What answered it."""


class Guidance(Part):
    """What is told before a second try at a problem, in the message that poses it.

    It is told for that try alone: what is learned from it is learned behind the plain problem.
    """

    @abstractmethod
    def tell(self, failed: FailedTry, draw: Random) -> str:
        """Say what helps.

        Args:
            failed: The first try.
            draw: Where all chance comes from.

        Returns:
            A text; empty where there is nothing to tell.

        """
        raise NotImplementedError
