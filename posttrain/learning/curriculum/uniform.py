"""Draw every problem with the same probability."""

from typing import TYPE_CHECKING, Literal

from posttrain.learning.curriculum.base import ProblemPool, ProblemSampler, WeightedStream

if TYPE_CHECKING:
    from torch import Tensor


class Uniform(ProblemSampler):
    """Draw every problem with the same probability, whatever became of it before.

    Each of P problems has the weight 1. The problems of a step are different ones; those of two
    steps are drawn independently.

    Source: own, the draw that all other samplers are compared with.
    """

    kind: Literal["uniform"] = "uniform"

    def start(self, pool: ProblemPool) -> WeightedStream:
        """Begin to draw; solve rates are not looked at."""
        return UniformStream(pool.problems["id"].to_list())


class UniformStream(WeightedStream):
    """Equal weights."""

    def weights(self) -> "Tensor":
        """1 for every problem, ``[P]``."""
        import torch

        return torch.ones(len(self.ids), dtype=torch.float64)
