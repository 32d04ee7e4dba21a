"""What all surrogates share: what they are given, and the level of the ratio."""

from typing import TYPE_CHECKING, ClassVar

from posttrain.learning.algorithms.batches import PolicyBatch, TokenLoss
from posttrain.learning.algorithms.part import AlgorithmPart

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.maths.ratios import RatioLevel


class Surrogate(AlgorithmPart):
    """How the ratio to the old policy enters the loss of a token."""

    HAS_RATIO: ClassVar[bool] = True
    """False where the loss is right for rollouts of the current policy only."""

    def token_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> TokenLoss:
        """Give the loss of each token, before weights and aggregation.

        Args:
            logprobs_BT: Of the policy that learns, in nats, with gradient.
            log_ratio_BT: Each token's log-ratio to the old policy, with gradient; 0 where masked.
            batch: The rollouts, with what the part needs; advantages with all bonuses in them.

        Returns:
            The loss of each token `[B, T]`, and where a clip took hold.

        """
        raise NotImplementedError


def at_level(log_ratio_BT: "Tensor", mask_BT: "Tensor", level: "RatioLevel") -> "Tensor":
    """Spread the tokens' log-ratios to a level.

    Args:
        log_ratio_BT: Each token's log-ratio; 0 where masked.
        mask_BT: The drawn tokens.
        level: Whose ratio: see `maths.ratios.log_ratio`.

    Returns:
        Log-ratios `[B, T]`; the same tensor where the level is that of tokens.

    """
    if level == "token":
        return log_ratio_BT
    from posttrain.learning.maths.ratios import log_ratio

    zero = log_ratio_BT.new_zeros(())
    return log_ratio(log_ratio_BT, zero, mask_BT=mask_BT, level=level)


def nothing_clipped(loss_BT: "Tensor") -> TokenLoss:
    """Wrap a loss that has no clip."""
    import torch

    return TokenLoss(loss_BT, torch.zeros_like(loss_BT, dtype=torch.bool))
