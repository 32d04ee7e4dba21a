"""Tokens that count by how undecided the policy was where they were drawn."""

from math import ceil
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import RolloutBatch, needed
from posttrain.learning.algorithms.token_weights.base import TokenWeight

if TYPE_CHECKING:
    from torch import Tensor


ROUNDING = 1e-5
"""Nats by which entropies of one distribution differ between passes of different shapes."""


class EntropyWeight(TokenWeight):
    """N / n at the n of a generation's N tokens whose entropies are highest, 0 at the others.

    All that have the entropy of the last one are kept: a group has one and the same at its first
    token. With `aggregation: token_mean` the loss is then the mean over the tokens that are kept.
    """

    SOURCE = (
        "arXiv 2506.01939, equation 6; Shenzhi-Wang/Beyond-the-80-20-Rule-RLVR at 6f5dda6,"
        " core_algos.py (get_global_entropy_top_mask)"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"generation_entropy"})

    kind: Literal["entropy"] = "entropy"
    """Learn from a share of the tokens, chosen by the policy's entropy before the first update."""
    share: float = Field(default=0.2, gt=0.0, le=1.0)
    """Of the generation's drawn tokens, rounded up."""
    keep: Literal["highest", "lowest"] = "highest"
    """Which end of the ranking bears loss."""

    def of_generation(self, rollouts: RolloutBatch, advantages_BT: "Tensor") -> "Tensor | None":  # noqa: ARG002
        """Keep the tokens of one end of the ranking; see `TokenWeight.of_generation`."""
        what = "token weight entropy"
        mask_BT = needed(rollouts.mask_BT, "mask_BT", what).bool()
        entropy_BT = needed(rollouts.entropy_BT, "entropy_BT", what)
        entropy_N = entropy_BT[mask_BT]
        # 0.7 x 10 is 7.000000000000001 for a computer, and seven tokens are meant.
        place = ceil(self.share * len(entropy_N) - 1e-9) - 1
        sign = 1.0 if self.keep == "highest" else -1.0
        threshold = (sign * entropy_N).sort(descending=True).values[place]
        kept_BT = mask_BT & (sign * entropy_BT >= threshold - ROUNDING)
        return kept_BT * (len(entropy_N) / kept_BT.sum())

    def describe(self) -> str:
        """`20% of highest entropy`."""
        return f"{self.share:.0%} of {self.keep} entropy"
