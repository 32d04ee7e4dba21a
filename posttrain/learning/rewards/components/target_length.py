"""An answer is to be as long as a target says."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class TargetLengthComponent(Component):
    """`-min(1, |length - target| / target)`: 0 at the target, -1 from twice of it on.

    With `over_only` what is shorter than the target costs nothing: a budget. A schedule of
    `target` is a budget that tightens.
    """

    SOURCE = "L1 (LCPO-Exact), arXiv 2503.04697; slope 1 / target and a floor"
    RANGE: ClassVar[Range] = (-1.0, 0.0)
    NEEDS: ClassVar[frozenset[str]] = frozenset({"tokens"})

    kind: Literal["target_length"] = "target_length"
    target: float = Field(gt=0.0)
    """Tokens that an answer is to have."""
    over_only: bool = False
    """Whether only tokens beyond the target cost."""

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:  # noqa: ARG002 - length
        """Compare with the target; see `Component.score`."""
        off = [length - self.target for length in group.lengths]
        cost = [max(0.0, each) if self.over_only else abs(each) for each in off]
        return [-min(1.0, each / self.target) for each in cost]
