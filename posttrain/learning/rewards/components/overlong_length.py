"""Answers that come near the limit of tokens cost something."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class OverlongLengthComponent(Component):
    """0 up to the last share of the limit, then down to -1 at the limit, token by token.

    `-min(1, max(0, length - (limit - b)) / b)`, `b = share limit`.
    """

    SOURCE = "DAPO, arXiv 2503.14476, equation 13"
    RANGE: ClassVar[Range] = (-1.0, 0.0)
    NEEDS: ClassVar[frozenset[str]] = frozenset({"tokens"})

    kind: Literal["overlong_length"] = "overlong_length"
    share: float = Field(default=0.2, gt=0.0, le=1.0)
    """Part of the limit, at its end, over which the penalty grows from 0."""
    limit: int | None = Field(default=None, ge=1)
    """Tokens at which it is whole; null takes the limit of generation."""

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Look at the lengths; see `Component.score`."""
        limit = known.longest(self.limit)
        buffer = max(1, round(self.share * limit))
        over = [length - (limit - buffer) for length in group.lengths]
        return [-min(1.0, max(0, each) / buffer) for each in over]
