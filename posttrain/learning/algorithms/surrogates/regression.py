"""The log-ratio of each turn, regressed to its advantage."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, TokenLoss
from posttrain.learning.algorithms.part import AlgorithmFacts
from posttrain.learning.algorithms.surrogates.base import Surrogate, nothing_clipped

if TYPE_CHECKING:
    from torch import Tensor


class RegressionSurrogate(Surrogate):
    """`(beta l - A)^2` of each turn, l the log-ratio of all that was said in it to the old policy.

    It is least at `l = A / beta`, whoever drew the turn, so that stored episodes are learned from
    without a weight; the nearer the policy is to that, the less it moves. A turn's loss is shared
    out over its tokens: the aggregation `sequence_mean_token_sum` makes it the sum over the turns
    of an episode. With `old_policy: recomputed` the old policy is that of before the step.
    """

    SOURCE = "WebRL, arXiv 2411.02337, equation 6"

    kind: Literal["regression"] = "regression"
    """No clip; squares hold each turn near what its advantage asks for."""
    beta: float = Field(default=1.0, gt=0.0)
    """Strength of the pull to the old policy: the optimum of a turn is at the log-ratio `A / beta`,
    in nats over the whole turn."""

    def token_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> TokenLoss:
        """Share each turn's square out over its tokens; see `Surrogate.token_loss`."""
        from posttrain.learning.maths.segments import runs, sum_of_runs

        turn_BT, num_turns = runs(batch.mask_BT)
        moved_BT, size_BT = sum_of_runs(log_ratio_BT, turn_BT, num_turns)
        size_BT = size_BT.clamp(min=1)
        paid_BT = batch.advantages_BT.expand_as(log_ratio_BT)
        advantage_BT = sum_of_runs(paid_BT, turn_BT, num_turns)[0] / size_BT
        return nothing_clipped((self.beta * moved_BT - advantage_BT).square() / size_BT)

    def describe(self) -> str:
        """`regression 1`."""
        return f"regression {self.beta:g}"

    def refusal(self, algorithm: AlgorithmFacts) -> str | None:
        """A turn's loss is the sum of what its tokens bear."""
        if algorithm.aggregation == "sequence_mean_token_sum":
            return None
        return (
            "surrogate regression shares the loss of a turn out over its tokens;"
            " set aggregation.kind to sequence_mean_token_sum"
        )
