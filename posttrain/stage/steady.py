"""Configs that no loop over steps resolves: a schedule in one would never be asked for a number."""

from typing import ClassVar, Self

from pydantic import model_validator

from posttrain.stage.config import StageConfig
from posttrain.stage.schedule import schedules_in


class SteadyFields(StageConfig):
    """A config of which some fields hold configs with no steps to go by.

    What such a field holds may be schedulable elsewhere, as an environment is where RL plays in it.
    """

    STEADY: ClassVar[frozenset[str]] = frozenset()
    """Fields that refuse schedules, and are not among the places that take one."""

    @model_validator(mode="after")
    def _plays_no_schedule(self) -> Self:
        for name in sorted(self.STEADY):
            for where, _ in schedules_in(getattr(self, name), name):
                raise ValueError(
                    f"{where} is a schedule, and there are no steps here; write a number"
                )
        return self
