"""What a pair builder is: a part that sets better samples of a problem against worse ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class PairCandidate:
    """One distinct sample of a problem, as a row of COMPLETIONS that could be judged."""

    id: str
    text: str
    verified: bool
    score: float
    of_reference: bool = False
    """True where it came as a sample of a reference, and not of the policy."""
    context: str = ""
    """What it was given in: of an episode also what was said before its last turn."""
    drawn: int = 1
    """How often it was drawn."""
    step: int = 0
    """Where the step that is compared begins in the text, its first character being 1; 0 where the
    whole text is compared."""


Chosen = tuple[PairCandidate, PairCandidate]
"""A better and a worse sample."""


class PairBuilder(Part):
    """Sets better samples of a problem against worse ones."""

    OF_STEPS: ClassVar[bool] = False
    """True where its pairs are beginnings of samples, compared by their last step."""

    def of_problem(self, samples: Sequence[PairCandidate], limit: int) -> list[Chosen]:
        """Choose the pairs of one problem.

        Args:
            samples: Its distinct samples, in a seeded order.
            limit: Most pairs to give.

        Returns:
            Pairs of a better and a worse sample; none where there is nothing to prefer.

        """
        raise NotImplementedError

    def of_all(self, pairs: "pl.DataFrame") -> "pl.DataFrame":
        """Leave out or rewrite pairs once those of all problems are there, ready ones too.

        Args:
            pairs: PAIRS without ids; their split may be open.

        Returns:
            Rows of the same columns; by default those that were given.

        """
        return pairs


def diagonal(
    better: Sequence[PairCandidate], worse: Sequence[PairCandidate], limit: int
) -> list[Chosen]:
    """Set every better sample against every worse one, up to a limit.

    Args:
        better: Samples to prefer.
        worse: Samples to reject.
        limit: Most pairs.

    Returns:
        Pairs along the diagonals of the table, so that a small limit still meets many texts.

    """
    around = math.lcm(len(better), len(worse)) or 1
    return [
        (better[step % len(better)], worse[(step + step // around) % len(worse)])
        for step in range(min(limit, len(better) * len(worse)))
    ]
