"""Ask the alarms of a run after every step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from posttrain.learning.training.alarms.base import Alarm
from posttrain.learning.training.curve import Curve
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError


@dataclass(frozen=True)
class Watch:
    """The alarms of a run, and where they look."""

    alarms: Mapping[str, Alarm]
    curve: Curve
    stage: str
    """Name before those of the metrics."""
    steps: int
    """That are planned."""
    context: StageContext
    kept: str = "a checkpoint"
    """What lies in the scratch folder of a run that was stopped."""

    def heed(self, step: int, *, save: Callable[[int], None] | None = None) -> None:
        """Note the alarms that begin with the last step; end the run where one stops it.

        Args:
            step: Steps that were made.
            save: Keeps what there is, for the run to go on from; None where it is kept already, as
                of a run that was taken up again and is still as it was when it was stopped.

        Raises:
            UserError: An alarm stops the run.

        """
        for name, alarm in self.alarms.items():
            values = self.curve.values(f"{self.stage}/{alarm.METRIC}")
            told = alarm.sounds(values)
            if told is None:
                continue
            if alarm.does == "stop":
                if save is not None:
                    save(step)
                raise UserError(self._stopped(name, told, step))
            if save is not None and alarm.sounds(values[:-1]) is None:
                self.context.note(f"{self.stage}.alarms.{name}: {told}")

    def _stopped(self, name: str, told: str, step: int) -> str:
        return (
            f"{self.stage}: {told}; alarms.{name} stopped the run after step {step} of"
            f" {self.steps}, with {self.kept} kept in {self.context.scratch}; mend the cause, or"
            " set `does` there to warn and run again to go on"
        )
