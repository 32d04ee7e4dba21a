"""A context that is kept whole: an episode ends where it is full."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.episodes.contexts.base import ContextManager, Crowded

if TYPE_CHECKING:
    from posttrain.learning.episodes.asked import TokenRole
    from posttrain.learning.episodes.episode import Segment


class Whole(ContextManager):
    """Keep all that was read and drawn.

    Source: own.
    """

    SPLITS: ClassVar[bool] = False

    kind: Literal["whole"] = "whole"

    def is_full(self, segment: "Segment") -> bool:  # noqa: ARG002 - never
        """Never; see `ContextManager.is_full`."""
        return False

    def make_room(
        self, crowded: Sequence[Crowded], role: "TokenRole"
    ) -> "list[tuple[Segment, ...]]":  # noqa: ARG002
        """Leave everything as it is; see `ContextManager.make_room`."""
        return [each.segments for each in crowded]
