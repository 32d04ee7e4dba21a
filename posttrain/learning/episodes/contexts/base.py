"""The slot of the context managers: what a part of it implements."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from posttrain.learning.episodes.asked import Cue, TokenRole
    from posttrain.learning.episodes.episode import Segment


class Crowded(NamedTuple):
    """A role whose context has become too long, before it speaks."""

    asked: "Cue"
    """What it is asked."""
    segments: "tuple[Segment, ...]"
    """All that it has read and drawn; the last one ends with what it was just told."""


class ContextManager(Part):
    """Decides when a role's tokens are too many, and what it goes on from then."""

    SPLITS: ClassVar[bool] = True
    """Whether an episode may become several sequences, which share what it earned."""

    def is_full(self, segment: "Segment") -> bool:
        """Tell whether a role must not speak behind so many tokens.

        Args:
            segment: The present one, with what the role was just told.

        """
        raise NotImplementedError

    def most_draws(self, turns: int) -> int:  # noqa: ARG002 - it draws nothing
        """Return how often it has a role draw, beside its turns, in an episode of so many."""
        return 0

    @abstractmethod
    def make_room(
        self, crowded: Sequence[Crowded], role: "TokenRole"
    ) -> "list[tuple[Segment, ...]]":
        """Begin afresh.

        Args:
            crowded: Roles of episodes, all in one round.
            role: Who they are: its engine and its tokenizer.

        Returns:
            Of each the segments so far, and a new one last that ends with what the role reads
            before it speaks. What was drawn stays as it was drawn, in the segment that it was
            drawn in, and is trained on there alone.

        """
        raise NotImplementedError
