"""A share by chance: a group begins anywhere in its solution."""

from collections.abc import Sequence
from random import Random
from typing import Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.rl.hints.base import HintLaw, TriedShare


class Scattered(HintLaw):
    """Draw the share of a group uniformly, anywhere between two ends or from equal parts.

    `h = low + u (high - low)`, u uniform on [0, 1], or on 0, 1/parts, ..., 1.
    """

    SOURCE = "SPARKLE, arXiv 2506.04723: a solution in parts, none to all of which are given"

    kind: Literal["scattered"] = "scattered"
    low: float = Field(default=0.0, ge=0.0, le=1.0)
    """The least share."""
    high: float = Field(default=1.0, ge=0.0, le=1.0)
    """The greatest."""
    parts: int | None = Field(default=None, ge=1)
    """Equal steps between the two ends, both of which may be drawn; null for any share between."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}; swap them")
        return self

    def share(
        self,
        tried: Sequence[TriedShare],  # noqa: ARG002 - chance alone decides
        recalled: Sequence[TriedShare],  # noqa: ARG002
        draw: Random,
    ) -> float:
        """Draw it; see `HintLaw.share`."""
        way = draw.random() if self.parts is None else draw.randint(0, self.parts) / self.parts
        return self.low + way * (self.high - self.low)
