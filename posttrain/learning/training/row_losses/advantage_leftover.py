"""Given rows that did better than a value expected, each weighed by how much better it did."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.training.row_losses.base import LearnedTokens, RowLoss

if TYPE_CHECKING:
    from torch import Tensor


class AdvantageLeftover(RowLoss):
    """Offline policy gradient: ``-A R log p`` in rows with an advantage above 0, nothing in others.

    A is the row's score less the value of its prompt, which a head on the frozen policy estimates.
    R is the ratio of the policy to the one that the stage starts from, of the whole row as one
    action or of each token, without a gradient and held within bounds.
    """

    SOURCE = (
        "A-LoL, arXiv 2305.14718, equations 3 to 5; abaheti95/LoL-RL at 9f8d816,"
        " lolrl_qlora_llama_hh.py"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"advantages", "reference"})

    kind: Literal["advantage_leftover"] = "advantage_leftover"
    ratio: Literal["row", "token", "none"] = "row"
    """Whose: of the whole row (A-LoL), of each token (A-LoL seq.), or 1 (A-LoL ref. free)."""
    clip: float = Field(default=0.9, gt=0.0)
    """How far from 1 the ratio may count, below and above."""

    def without_effect(self) -> frozenset[str]:
        """`clip` without a ratio."""
        return frozenset({"clip"} if self.ratio == "none" else ())

    def losses(self, tokens: LearnedTokens) -> "Tensor":
        """Weigh the likelihood of every token; see `RowLoss.losses`."""
        weight_N = tokens.advantages_N.clamp(min=0.0)
        if self.ratio != "none":
            apart_N = (tokens.logprobs_N - tokens.reference_N).detach()
            if self.ratio == "row":
                apart_N = _of_rows(apart_N, tokens.ends_N)
            ratio_N = apart_N.clamp(-20.0, 20.0).exp().clamp(1 - self.clip, 1 + self.clip)
            weight_N = weight_N * ratio_N
        return -weight_N * tokens.logprobs_N


def _of_rows(values_N: "Tensor", ends_N: "Tensor") -> "Tensor":
    """The sum over its row, at each token."""
    from posttrain.learning.maths.segments import segment_sum

    row_N = ends_N.long().cumsum(0) - ends_N.long()
    return segment_sum(values_N, row_N, int(ends_N.sum()) + 1)[row_N]
