"""The slot of the foreign losses: what a part of it implements."""

from typing import TYPE_CHECKING, ClassVar

from posttrain.learning.algorithms.part import AlgorithmPart

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.algorithms.batches import PolicyBatch


class ForeignLoss(AlgorithmPart):
    """The loss of tokens that another than the policy wrote; it stands in the surrogate's place.

    A part says what it takes for the author's probabilities: by `token_loss`, where it does not go
    by them, or by `batch_loss`, whose batch has them where somebody knows them.
    """

    ASKS_AUTHORS: ClassVar[bool] = False
    """True where it means something only by the author's own log-probabilities."""

    def batch_loss(self, logprobs_BT: "Tensor", batch: "PolicyBatch") -> "Tensor":
        """Give the loss of each token of a batch, of which those that others wrote count.

        Args:
            logprobs_BT: Of the policy that learns, in nats, with gradient.
            batch: With `author_logprobs_BT`, and in `sampled_logprobs_BT` those of the policy
                before the step's first update.

        Returns:
            `[B, T]`.

        """
        return self.token_loss(logprobs_BT, batch.sampled_logprobs_BT, batch.advantages_BT)

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
