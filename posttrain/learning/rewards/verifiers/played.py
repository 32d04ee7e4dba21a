"""What cannot be told from a text: an episode is worth what its environment says."""

from typing import Literal

from posttrain.learning.rewards.verifiers.base import ByPlay


class PlayedVerifier(ByPlay):
    """Names problems of worlds, which judge their episodes; a text that nobody played is unjudged.

    Codes: `not_played`, and of what was played `correct` and `not_solved`.

    Source: own; each world says its own source.
    """

    kind: Literal["played"] = "played"

    def stated(self, text: str) -> str | None:
        """Return what was said last, for votes."""
        return text.strip().rpartition("\n")[2] or None
