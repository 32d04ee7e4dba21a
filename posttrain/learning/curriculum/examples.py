"""The same few problems, as often as it takes to fill a step."""

from collections.abc import Collection, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.curriculum.base import ProblemPool, ProblemSampler, ProblemStream
from posttrain.stage.errors import UserError


class Examples(ProblemSampler):
    """Draw the same few problems in turn, as often as it takes to fill every step.

    They are those whose probed solve rate lies nearest a half, where the variance of the reward is
    greatest; of equals the first of the table. Each copy of a problem is a group of its own.
    """

    SOURCE: ClassVar[str] = "1-shot RLVR, arXiv 2504.20571, section 2 (duplicated to fill a batch)"
    NEEDS = frozenset({"solve_rates"})
    REPEATS: ClassVar[bool] = True

    kind: Literal["examples"] = "examples"
    number: int = Field(default=1, ge=1)
    """How many different problems."""

    def start(self, pool: ProblemPool) -> "ExamplesStream":
        """Choose the problems.

        Args:
            pool: The problems with their solve rates.

        Returns:
            A stream of problems without state.

        Raises:
            UserError: Fewer were probed.

        """
        rates = pool.rates()
        ids = pool.problems["id"].to_list()
        probed = [place for place, name in enumerate(ids) if name in rates]
        if len(probed) < self.number:
            raise UserError(
                f"{pool.where}: {len(probed)} problems were probed, and rl.draw.sampler takes"
                f" {self.number} of them as examples; lower number, or probe more problems"
            )
        probed.sort(key=lambda place: abs(rates[ids[place]] - 0.5))
        return ExamplesStream(probed[: self.number])


class ExamplesStream(ProblemStream):
    """Goes round its problems."""

    def __init__(self, places: Sequence[int]) -> None:
        self.places = places

    def draw(
        self,
        count: int,
        *,
        seed: int,  # noqa: ARG002 - no chance is in it
        step: int,
        without: Collection[int] = (),
    ) -> Sequence[int]:
        """Take them in turn, from where the step before ended; see `ProblemStream.draw`."""
        first = step * (len(without) + count) + len(without)
        return [self.places[(first + k) % len(self.places)] for k in range(count)]
