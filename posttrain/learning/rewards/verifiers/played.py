"""What cannot be told from a text: an episode is worth what its environment says."""

from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.verifiers.base import Verifier

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class PlayedVerifier(Verifier):
    """Names problems of worlds, which judge their episodes; a text that nobody played is unjudged.

    Codes: `not_played`, and of what was played `correct` and `not_solved`.
    """

    REFERENCE: ClassVar[bool] = False

    kind: Literal["played"] = "played"

    def score(self, text: str, problem: "Problem") -> Score:  # noqa: ARG002 - no text can tell
        """Leave it unjudged; see `Verifier.score`."""
        return Score(None, "not_played")

    def stated(self, text: str) -> str | None:
        """Return what was said last, for votes."""
        return text.strip().rpartition("\n")[2] or None
