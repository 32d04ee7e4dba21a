"""The domain of logic: an order of things, from what is known of pairs of them."""

from itertools import pairwise
from random import Random
from typing import Literal

from posttrain.data.sources.posed import PosedProblem, SlippingSource
from posttrain.data.teachers.notes import Notes

_NAMES = "cdfghkmp"
_BACKWARD = 2
"""The level at which pairs are told from the last to the first."""


class LogicSource(SlippingSource):
    """Asks for the order of some things, of which each neighboring pair is told.

    Level 1 tells the pairs in their order, level 2 from the last to the first, and those above by
    chance. There are four things, from level 4 on one more each time, eight at most. A solution
    finds one after the other, from the first.
    """

    SOURCE = "the domain Logic of Guru, arXiv 2506.14965: ordering puzzles"

    kind: Literal["logic"] = "logic"
    name: str = "logic"
    """Name of the source."""

    def posed(self, level: int, draw: Random) -> PosedProblem:
        """Tell the pairs of a chain; see `PosedSource.posed`."""
        chain = draw.sample(_NAMES, min(max(level + 1, 4), len(_NAMES)))
        told = [f"{one}<{other}" for one, other in pairwise(chain)]
        if level == _BACKWARD:
            told.reverse()
        elif level > _BACKWARD:
            draw.shuffle(told)

        def work(notes: Notes) -> str:
            left, found = list(chain), ""
            while left:
                found += notes.choice(left[0], left)
                left.remove(found[-1])
                notes.lines.append(found)
            # The last line would be the answer once more.
            notes.lines.pop()
            return found

        return PosedProblem(f"{' '.join(told)} order?", "".join(chain), work)
