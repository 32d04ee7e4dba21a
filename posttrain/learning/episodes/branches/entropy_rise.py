"""Branches where the policy is less sure than it was at first."""

import math
from collections.abc import Sequence
from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.episodes.branches.base import Branching, Standing


class EntropyRise(Branching):
    """Branch behind an answer by chance, the likelier the more entropy rose since the first turn.

    The chance is `chance` + `weight` · (H - H of the first turn), where H adds up the entropies of
    a turn's first tokens, each as a share of log V.
    """

    SOURCE: ClassVar[str] = (
        "ARPO, arXiv 2507.19849, section 3.1; dongguanting/ARPO-anonymous at 9d1c532,"
        " vllm_rollout_with_tools.py"
    )

    kind: Literal["entropy_rise"] = "entropy_rise"
    begin: float = Field(default=0.5, gt=0.0, le=1.0)
    """Episodes that begin at once / the size of a group: half of them, as 8 of 16."""
    chance: float = Field(default=0.5, ge=0.0, le=1.0)
    """Of a branch where entropy is as it was."""
    weight: float = 0.2
    """What a rise by 1 adds to the chance."""
    most: int = Field(default=1, ge=1)
    """Branches of one episode in a round, each by a chance of its own."""
    first_tokens: int = Field(default=20, ge=1)
    """Tokens of a turn whose entropies count."""

    @property
    def tokens(self) -> int:
        """Those that count; see `Branching.tokens`."""
        return self.first_tokens

    def begins(self, group_size: int) -> int:
        """Return the share of a group, at least one; see `Branching.begins`."""
        return max(1, round(self.begin * group_size))

    def branches(self, standing: Sequence[Standing], room: int, draw: Random) -> Sequence[int]:
        """Try each episode in turn, as long as there is room; see `Branching.branches`."""
        chosen: list[int] = []
        for place, each in enumerate(standing):
            first, last = each.entropies[0], each.entropies[-1]
            chance = self.chance + self.weight * (math.fsum(last) - math.fsum(first))
            tries = min(self.most, room - len(chosen))
            chosen += [place for _ in range(tries) if draw.random() < chance]
        return chosen
