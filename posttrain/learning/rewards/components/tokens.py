"""How long an answer is."""

from collections.abc import Sequence
from math import inf
from typing import ClassVar, Literal

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class TokensComponent(Component):
    """The number of tokens drawn, for a limit of its mean (`lagrangian`) or a curve (weight 0).

    Source: own.
    """

    RANGE: ClassVar[Range] = (0.0, inf)
    NEEDS: ClassVar[frozenset[str]] = frozenset({"tokens"})

    kind: Literal["tokens"] = "tokens"

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:  # noqa: ARG002 - length
        """Count; see `Component.score`."""
        return [float(length) for length in group.lengths]
