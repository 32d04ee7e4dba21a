"""Short answers of a group earn more than its long ones."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class GroupLengthComponent(Component):
    """`1/2 - (length - shortest) / (longest - shortest)` of the group; of a wrong one at most 0."""

    SOURCE = "Kimi k1.5, arXiv 2501.12599, section 2.3.3 (length penalty)"
    SCOPE: ClassVar[Literal["group"]] = "group"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"solved"})
    RANGE: ClassVar[Range] = (-0.5, 0.5)

    kind: Literal["group_length"] = "group_length"

    def bounds(self, *, solved: bool) -> Range:
        """Return the ends; a wrong answer earns nothing by being short."""
        return (-0.5, 0.5) if solved else (-0.5, 0.0)

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:  # noqa: ARG002 - lengths
        """Compare the lengths; see `Component.score`."""
        least, most = min(group.lengths), max(group.lengths)
        if least == most:
            return [None if right is None else 0.0 for right in group.solved]
        placed = [0.5 - (length - least) / (most - least) for length in group.lengths]
        return [
            None if right is None else each if right else min(0.0, each)
            for right, each in zip(group.solved, placed, strict=True)
        ]
