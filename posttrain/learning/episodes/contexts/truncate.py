"""A context that forgets its middle."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.episodes.contexts.base import ContextManager, Crowded
from posttrain.learning.episodes.episode import Segment

if TYPE_CHECKING:
    from posttrain.learning.episodes.asked import TokenRole


class Truncate(ContextManager):
    """Go on from the problem's prompt and the last turns, where there are more tokens than so many.

    The tokens are those that were read and drawn, in a sequence of their own, in which only what is
    drawn from then on bears loss.

    Source: own.
    """

    kind: Literal["truncate"] = "truncate"
    at_tokens: int = Field(ge=1)
    """Tokens of a sequence, read and drawn, above which it is cut before the next turn."""
    keep_turns: int = Field(default=1, ge=1)
    """Turns, each with what was read behind it, that are kept behind the prompt."""

    def is_full(self, segment: Segment) -> bool:
        """Count its tokens; see `ContextManager.is_full`."""
        kept = 1 + 2 * self.keep_turns
        return len(segment.token_ids) > self.at_tokens and len(_stretches(segment)) > kept

    def make_room(self, crowded: Sequence[Crowded], role: "TokenRole") -> list[tuple[Segment, ...]]:  # noqa: ARG002
        """Leave the middle out; see `ContextManager.make_room`."""
        return [self._cut(each.segments) for each in crowded]

    def _cut(self, segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        *earlier, last = segments
        # The prompt is read, then come turns: what was said, and what was read behind it. In a
        # segment that begins with kept turns these are spans, too, of tokens that are now read.
        (_, end), *behind = _stretches(last)
        fresh = Segment(last.role).read(last.token_ids[:end])
        for begin, end in behind[-2 * self.keep_turns :]:
            fresh = fresh.read(last.token_ids[begin:end])
        return (*earlier, last.until_drawn(), fresh)


def _stretches(segment: Segment) -> list[tuple[int, int]]:
    """Where each begins and ends that was read, or drawn, at once.

    What several policies drew of one turn is several spans, with nothing read between.
    """
    found: list[tuple[int, int]] = []
    drawn = False
    for span in segment.spans:
        if drawn and span.drawn:
            found[-1] = found[-1][0], span.end
        else:
            found.append((span.begin, span.end))
        drawn = span.drawn
    return found
