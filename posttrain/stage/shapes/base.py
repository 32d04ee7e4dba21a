"""What every shape of a schedule can do."""

from posttrain.stage.slots import Part


class ScheduleShape(Part):
    """Lead a scheduled number from its first value to its last."""

    def refuse(self, start: float, end: float) -> str | None:
        """Say why this shape cannot lead from `start` to `end`.

        Args:
            start: The value at progress 0.
            end: The value at progress 1.

        Returns:
            One clause with the remedy, or None where all is well.

        """
        return None

    def value(self, start: float, end: float, progress: float) -> float:
        """Compute the value on the way.

        Args:
            start: The value at progress 0.
            end: The value at progress 1.
            progress: Share of the way, strictly between 0 and 1; the ends are the schedule's own.

        Returns:
            A number between `start` and `end`.

        """
        raise NotImplementedError
