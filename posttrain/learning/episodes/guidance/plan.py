"""A plan: what somebody does first who knows how the problem is solved."""

from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.data.plans import FIRST_MOVES
from posttrain.learning.episodes.guidance.base import FailedTry, Guidance


class Plan(Guidance):
    """Tell the first moves of the world's own script, but never the last, which is the answer."""

    SOURCE: ClassVar[str] = "Agent-RLVR, arXiv 2506.11425: plans among its guidance"

    kind: Literal["plan"] = "plan"
    moves: int = Field(default=FIRST_MOVES, ge=1)
    """So many of them, at most."""

    def tell(self, failed: FailedTry, draw: Random) -> str:
        """Ask the environment; see `Guidance.tell`."""
        return failed.environment.plan(failed.problem, draw, moves=self.moves)
