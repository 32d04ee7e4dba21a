"""A share of a table that grows by a factor and shrinks by it, over and over."""

from typing import Self

from pydantic import Field, model_validator

from posttrain.stage.config import StageConfig


class SwingConfig(StageConfig):
    """A share that grows from pass to pass, or phase to phase, and shrinks again, over and over."""

    least: float = Field(default=0.25, gt=0.0, le=1.0)
    """The first share, and the smallest one."""
    most: float = Field(default=1.0, gt=0.0, le=1.0)
    """The largest share."""
    factor: float = Field(default=0.5, gt=0.0, lt=1.0)
    """What a shrinking share is of the one before; a growing one is that many times more."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"least {self.least} is above most {self.most}; swap them")
        return self

    def share_of(self, number: int) -> float:
        """Compute a share of the swing of Cyclical Curriculum Learning, from the smallest one on.

        Source: arXiv 2202.05531; CyclicalCurriculum/Cyclical-Curriculum at 90bfae0,
        ChangeDatasize.py (get_cycle_sizes).

        >>> [SwingConfig().share_of(number) for number in range(6)]
        [0.25, 0.5, 1.0, 0.5, 0.25, 0.5]

        Args:
            number: Of the share, from 0.

        Returns:
            A number from `least` to `most`, which are both met in every swing.

        """
        cycle, share = [], self.least
        while share < self.most:
            cycle.append(share)
            share *= 1 / self.factor
        cycle.append(self.most)
        share = self.most * self.factor
        while share > self.least:
            cycle.append(share)
            share *= self.factor
        return cycle[number % len(cycle)]
