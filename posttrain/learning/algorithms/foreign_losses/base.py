"""The slot of the foreign losses: what a part of it implements."""

from typing import TYPE_CHECKING

from posttrain.learning.algorithms.part import AlgorithmPart

if TYPE_CHECKING:
    from torch import Tensor


class ForeignLoss(AlgorithmPart):
    """The loss of tokens that another than the policy wrote; it stands in the surrogate's place.

    Who wrote them is not asked for probabilities: a part says by what it takes their place.
    """

    def token_loss(
        self, logprobs_BT: "Tensor", before_BT: "Tensor", advantages_BT: "Tensor"
    ) -> "Tensor":
        """Give the loss of each token.

        Args:
            logprobs_BT: Of the policy that learns, in nats, with gradient.
            before_BT: Of the policy before the step's first update.
            advantages_BT: `[B, T]`, or `[B, 1]` where all tokens of a rollout share one.

        Returns:
            `[B, T]`.

        """
        raise NotImplementedError
