"""The same share for all problems, or one that fades by a schedule."""

from collections.abc import Sequence
from random import Random
from typing import Literal

from pydantic import Field

from posttrain.learning.rl.hints.base import HintLaw, TriedShare


class Fixed(HintLaw):
    """Give the same share of every solution; a schedule lets it fade.

    Of a solution y the first `given |y|` tokens, whatever came of earlier tries.

    Source: QuestA, arXiv 2507.13266: half of a solution, later a quarter; foreverlasting1202/QuestA
    at 0f55909, AReaL/datasets/add_prefix.py (split_prefix). A share that fades by the step is own.
    """

    kind: Literal["fixed"] = "fixed"
    given: float = Field(default=0.5, ge=0.0, le=1.0)
    """Of the solution's tokens."""

    def share(
        self,
        tried: Sequence[TriedShare],  # noqa: ARG002 - it is the same whatever came of it
        recalled: Sequence[TriedShare],  # noqa: ARG002
        draw: Random,  # noqa: ARG002
    ) -> float:
        """Give it; see `HintLaw.share`."""
        return self.given
