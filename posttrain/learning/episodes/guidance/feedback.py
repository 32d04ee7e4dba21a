"""Feedback: what was done in the first try, and what the environment answered."""

from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.episodes.guidance.base import FailedTry, Guidance


class Feedback(Guidance):
    """Tell how the first try ended: its last turns, and what the environment answered them."""

    SOURCE: ClassVar[str] = "Agent-RLVR, arXiv 2506.11425: feedback on errors among its guidance"

    kind: Literal["feedback"] = "feedback"
    turns: int = Field(default=1, ge=1)
    """Of the policy, counted from the end."""

    def tell(self, failed: FailedTry, draw: Random) -> str:  # noqa: ARG002 - nothing is drawn
        """Repeat the end of what was said; see `Guidance.tell`."""
        spoken = [place for place, (who, _) in enumerate(failed.said) if who == "assistant"]
        begin = spoken[-self.turns :][:1]
        told = [text.strip() for _, text in failed.said[begin[0] :]] if begin else []
        return f"failed: {' / '.join(told)}" if any(told) else ""
