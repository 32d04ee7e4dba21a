"""What every combination of reward components is."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from posttrain.learning.rewards.components.base import Range
from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import Part


class Combine(Part, Schedulable):
    """Makes one number of the named scores of an answer; derive from it and define `combine`.

    Its numbers may be schedules of the step, and are numbers where it combines.
    """

    def combine(
        self, scores: Mapping[str, Sequence[float | None]], *, step: int, state: dict[str, Any]
    ) -> Sequence[float | None]:
        """Combine the scores of all answers of one round of sampling.

        Args:
            scores: Component -> one score per answer, ``[B]``; None where it was not judged.
            step: 0-based step that the answers will be learned from in.
            state: What is remembered from one call to the next, such as multipliers: plain values,
                empty at first. It may be changed in place, and is in the checkpoint.

        Returns:
            One number per answer, ``[B]``; None where it cannot be told, so that the answer bears
            no loss and enters no statistic.

        """
        raise NotImplementedError

    def names(self) -> Sequence[str]:
        """Return the components that it names, each of which the recipe must have."""
        return ()

    def bounds(self, ranges: Mapping[str, Range]) -> Range | None:  # noqa: ARG002 - see below
        """Return the least and the greatest reward, so that no bonus outweighs correctness unseen.

        Args:
            ranges: Component -> its least and greatest score.

        Returns:
            Both ends; None where that cannot be told, and then nothing is refused.

        """
        return None

    def apart(self, names: Collection[str]) -> Mapping[str, float]:  # noqa: ARG002 - see below
        """Return the weight of each component whose advantages are taken by themselves.

        Args:
            names: All components.

        Returns:
            Component -> weight of its advantage in their sum; nothing where the advantages are
            those of the reward.

        """
        return {}

    def by_token(self, names: Collection[str]) -> Mapping[str, float] | None:  # noqa: ARG002
        """Return the weight with which each of some components pays every token by itself.

        Args:
            names: Components of scope turn or token.

        Returns:
            Component -> weight of its share in the reward, so that what the tokens are paid is a
            part of the sum; None where this combination takes one number for each answer alone.

        """
        return None

    def measured(self, state: Mapping[str, Any]) -> dict[str, float]:  # noqa: ARG002 - see below
        """Return figures of what is remembered, by names that `measures` declares."""
        return {}

    def measures(self) -> Mapping[str, str]:
        """Return a sentence for each figure of `measured`, by name; they stand in the curve."""
        return {}
