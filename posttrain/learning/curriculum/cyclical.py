"""The easiest problems, of which there are more and fewer in turns."""

from collections.abc import Collection, Mapping, Sequence
from math import ceil
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.curriculum.base import ProblemPool, ProblemSampler, StepCount
from posttrain.learning.curriculum.uniform import UniformStream
from posttrain.learning.swing import SwingConfig
from posttrain.stage.errors import UserError


class Cyclical(SwingConfig, ProblemSampler):
    """Draw alike from the easiest share of the problems, which grows to all and shrinks, in turns.

    How easy a problem is was said or measured beforehand: its difficulty, or its solve rate in the
    connected probe, where one that was not probed counts as the hardest. Equals are put in order by
    their ids, which are hashes of what they say.
    """

    SOURCE: ClassVar[str] = (
        "Cyclical Curriculum Learning, arXiv 2202.05531; CyclicalCurriculum/Cyclical-Curriculum at"
        " 90bfae0, ChangeDatasize.py (get_cycle_sizes)"
    )
    METRICS: ClassVar[Mapping[str, str]] = {
        "share": "share of the problems, the easiest, that the step's were drawn from"
    }

    kind: Literal["cyclical"] = "cyclical"
    by: Literal["difficulty", "solve_rate"] = "difficulty"
    """What says how easy a problem is."""
    steps: int = Field(default=10, ge=1)
    """Steps before the share changes."""

    def start(self, pool: ProblemPool) -> "CyclicalStream":
        """Put the problems in order.

        Args:
            pool: The problems; with their solve rates where these say how easy they are.

        Returns:
            A stream of problems.

        Raises:
            UserError: Solve rates are wanted, and none of the problems has one.

        """
        ids = pool.problems["id"].to_list()
        if self.by == "difficulty":
            hard = pool.problems["difficulty"].to_list()
        else:
            rates = pool.rates()
            hard = [1.0 - rates.get(name, -1.0) for name in ids]
            if not rates.keys() & set(ids):
                raise UserError(
                    f"{pool.where}: rl.draw.sampler cyclical orders by solve_rate, and none of"
                    f" {len(ids)} problems has one; connect a probe's of these problems, or set by"
                    " to difficulty"
                )
        order = sorted(range(len(ids)), key=lambda place: (hard[place], ids[place]))
        return CyclicalStream(ids, order, config=self)

    def share_at(self, step: int) -> float:
        """Return the share of the problems that a step draws from.

        >>> [Cyclical(steps=1).share_at(step) for step in range(6)]
        [0.25, 0.5, 1.0, 0.5, 0.25, 0.5]

        Args:
            step: From 0.

        Returns:
            A number from `least` to `most`, which are both met.

        """
        return self.share_of(step // self.steps)


class CyclicalStream(StepCount, UniformStream):
    """The problems from the easiest on, and how many steps were learned from."""

    def __init__(self, ids: Sequence[str], order: Sequence[int], *, config: Cyclical) -> None:
        super().__init__(ids)
        self.order, self.config = order, config

    def draw(
        self, count: int, *, seed: int, step: int, without: Collection[int] = ()
    ) -> Sequence[int]:
        """Draw from the easiest; where they run out the next ones follow, from the easiest on.

        Args:
            count: How many.
            seed: Of the run.
            step: From 0; it says how large the share is.
            without: Places that are not to be drawn.

        Returns:
            Places among the problems.

        """
        # 0.07 x 100 is 7.000000000000001 for a computer, and seven problems are meant.
        most = ceil(self.config.share_at(step) * len(self.order) - 1e-9)
        inside, taken = set(self.order[:most]), set(without)
        shuffled = super().draw(len(self.order), seed=seed, step=step)
        drawn = [*(place for place in shuffled if place in inside), *self.order[most:]]
        return [place for place in drawn if place not in taken][:count]

    def metrics(self) -> dict[str, float]:
        """The share of the last step."""
        return {"share": self.config.share_at(max(0, self.observed - 1))}
