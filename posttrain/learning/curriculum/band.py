"""Draw the problems whose measured difficulty lies within a band."""

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.curriculum.base import ProblemPool, ProblemSampler, WeightedStream
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


class Band(ProblemSampler):
    """Draw alike from the problems whose solve rate before training lies within a band.

    A problem has the weight 1 where `least <= rate <= most`, else 0; one that was not probed has
    none. The rates are those of the connected probe and do not follow the training: a selection
    beforehand, as most data sets are made.

    Source: LLM360/Reasoning360 at 1315834, model_filtering/run_filter.py: Guru's problems, arXiv
    2506.14965, are chosen by pass rates that were measured beforehand, those of two models.
    """

    NEEDS = frozenset({"solve_rates"})

    kind: Literal["band"] = "band"
    least: float = Field(default=0.0, ge=0.0, le=1.0)
    """Lowest solve rate that is practiced on."""
    most: float = Field(default=1.0, ge=0.0, le=1.0)
    """Highest solve rate that is."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"least {self.least} is more than most {self.most}; exchange them")
        return self

    def start(self, pool: ProblemPool) -> "BandStream":
        """Choose the problems.

        Args:
            pool: The problems with their solve rates, of whichever policy measured them.

        Returns:
            A stream of problems without state.

        Raises:
            UserError: No problem lies within the band.

        """
        rates = pool.rates()
        ids = pool.problems["id"].to_list()
        inside = [self.least <= rates.get(name, -1.0) <= self.most for name in ids]
        if not any(inside):
            raise UserError(
                f"{pool.where}: of {len(ids)} problems none has a solve rate from {self.least:g} to"
                f" {self.most:g}; widen the band of rl.draw.sampler, or probe more problems"
            )
        return BandStream(ids, inside)


class BandStream(WeightedStream):
    """Equal weights inside, none outside."""

    def __init__(self, ids: list[str], inside: list[bool]) -> None:
        super().__init__(ids)
        self.inside = inside

    def weights(self) -> "Tensor":
        """1 inside of the band, 0 outside, ``[P]``."""
        import torch

        return torch.tensor(self.inside, dtype=torch.float64)
