"""The slot of the run sources: what a part of it implements, and what a tracked run is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posttrain.stage.slots import Part

StepValues = Mapping[int, float]
"""Value of a metric by step."""


@dataclass(frozen=True)
class FetchedRun:
    """A run as its tracker has it."""

    id: str
    """The tracker's own."""
    name: str
    """What a person reads."""
    facts: Mapping[str, str]
    """Parameters and tags by name; where both have one, the parameter's."""
    points: Mapping[str, StepValues]
    """Metrics by name, those that were asked for; finite values alone, the last of each step."""


class RunSource(Part):
    """Reads runs of a tracker."""

    def path(self) -> str | None:
        """Name the file that is read, from the recipe's folder on; its content is in the key."""
        return None

    def runs(
        self, metrics: Sequence[str], where: Mapping[str, str], file: Path | None
    ) -> Sequence[FetchedRun]:
        """Read the runs that have ended well.

        Args:
            metrics: Names of metrics, as the tracker has them.
            where: Parameters and tags that a run must have, with their values.
            file: What `path` names; None where it names nothing.

        Returns:
            The runs, whether or not they have the metrics.

        Raises:
            UserError: The tracker does not answer, or has no such experiment.

        """
        raise NotImplementedError


def fits(facts: Mapping[str, str], where: Mapping[str, str]) -> bool:
    """Tell whether a run has all parameters and tags that are asked for."""
    return all(facts.get(name) == value for name, value in where.items())
