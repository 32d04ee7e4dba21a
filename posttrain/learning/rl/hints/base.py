"""The slot of the hint laws: what a part of it implements."""

from collections.abc import Sequence
from random import Random
from typing import ClassVar, NamedTuple

from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import Part

HINT, HINT_ROUND = "hint", "hint_round"
"""Facts of a rollout: the share of a solution that stood before it, and the round of its draw."""


class TriedShare(NamedTuple):
    """What came of the rollouts that were drawn at once behind one hint."""

    share: float
    """Of the reference solution's tokens, what was given: 0 for nothing."""
    solved: tuple[bool | None, ...]
    """Whether each rollout is right, by its problem's verifier; None where it could not be judged.
    """

    @property
    def num_right(self) -> int:
        """Rollouts that are right."""
        return sum(each is True for each in self.solved)

    @property
    def num_judged(self) -> int:
        """Rollouts that could be judged."""
        return sum(each is not None for each in self.solved)


class HintLaw(Part, Schedulable):
    """How much of a problem's reference solution stands before what is drawn.

    Its numbers may be schedules of the step, and are numbers where it is asked.
    """

    LOOKS: ClassVar[bool] = False
    """True where it goes by what came of earlier rollouts: they are then verified while a step is
    drawn. Else all that it is told of them is the share that was given."""

    @property
    def recalled(self) -> int:
        """How many of a problem's hints of earlier steps it is told of, the latest; 0 for none."""
        return 0

    def portions(self, group_size: int) -> Sequence[int]:
        """Say how many rollouts of a problem are drawn at once.

        Args:
            group_size: Of the stage.

        Returns:
            The number for each round, in order; a group has what the rounds come to that are drawn.

        """
        return (group_size,)

    def share(
        self, tried: Sequence[TriedShare], recalled: Sequence[TriedShare], draw: Random
    ) -> float | None:
        """Choose the share of the solution that is given before the next rollouts of a problem.

        Args:
            tried: What was drawn for it in this step, in order; empty in the first round.
            recalled: The same of earlier steps, at most `recalled` of them, the latest last.
            draw: Where all chance comes from; of the step and the problem.

        Returns:
            A number from 0 to 1; None where no more rollouts are needed, which is not for the first
            round.

        """
        raise NotImplementedError
