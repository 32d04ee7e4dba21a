"""What every combination of reward components is."""

from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.stage.slots import Part


class Combine(Part):
    """Makes one number of the named scores of an answer; derive from it and define `combine`."""

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
