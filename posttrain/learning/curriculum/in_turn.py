"""All problems of a small table, as often as it takes to fill a step."""

from typing import ClassVar, Literal

from posttrain.learning.curriculum.base import ProblemPool, ProblemSampler
from posttrain.learning.curriculum.examples import ExamplesStream


class AllInTurn(ProblemSampler):
    """Draw all problems in turn, as often as it takes to fill every step.

    For the few that `tasks.select` chose; each copy of a problem is a group of its own.
    """

    SOURCE: ClassVar[str] = "1-shot RLVR, arXiv 2504.20571, section 2 (duplicated to fill a batch)"
    REPEATS: ClassVar[bool] = True

    kind: Literal["in_turn"] = "in_turn"

    def start(self, pool: ProblemPool) -> ExamplesStream:
        """Begin with the first of the table; solve rates are not looked at."""
        return ExamplesStream(range(len(pool.problems)))
