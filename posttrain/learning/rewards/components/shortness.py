"""Answers cost the less the more tokens they take."""

from collections.abc import Sequence
from math import inf
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class ShortnessComponent(Component):
    """`-scale / length`, by drawn tokens, whether right or wrong: to think on is worth something.

    What a further token earns falls with the square of the length, so that there is no end at
    which it stops, and little to be had where an answer is long already.
    """

    SOURCE = (
        "RLSP, arXiv 2502.06773; GuanghaoYe/Emergence-of-Thinking at e7feea7,"
        " orm_server_efficient.py (length_penalty)"
    )
    RANGE: ClassVar[Range] = (-inf, 0.0)
    NEEDS: ClassVar[frozenset[str]] = frozenset({"tokens"})

    kind: Literal["shortness"] = "shortness"
    scale: float = Field(gt=0.0)
    """What an answer of a single token costs; an answer of so many tokens costs 1."""

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:  # noqa: ARG002 - length
        """Divide by the length; see `Component.score`."""
        return [-self.scale / max(length, 1) for length in group.lengths]
