"""The log-ratio is a token's value under a policy that says anything, learned by regression."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, TokenLoss, needed
from posttrain.learning.algorithms.surrogates.base import Surrogate, nothing_clipped

if TYPE_CHECKING:
    from torch import Tensor


class UniformValueSurrogate(Surrogate):
    """`(Q_t - sg(A + mean over the vocabulary of Q_t+1))^2`, `Q = rho l` of the token said.

    Where steps are certain, no two paths meet and an end is right or wrong, the value of a policy
    that chooses evenly among all tokens says already which choice is best; so that one is learned,
    by its Bellman equation, and answers are drawn from the softmax over it, which is the policy
    itself: l is the log-ratio to the policy before the step. Every token is paid the advantage of
    its rollout, and behind the last one there is nothing.
    """

    SOURCE = (
        "ROVER, arXiv 2509.24981, algorithm 1; yuxiaooye/ROVER at ea5ce63, dp_actor.py"
        " (DataParallelROVERActor)"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"vocabulary_ratio"})
    PLAIN_AT_ONE: ClassVar[bool] = True

    kind: Literal["uniform_value"] = "uniform_value"
    """The value of saying anything, as a log-ratio."""
    rho: float = Field(default=1.0, gt=0.0)
    """Value of one nat."""
    ahead: float = Field(default=1.0, ge=0.0, le=1.0)
    """Share of the next token's mean value in the target; 0 regresses to the advantage alone."""

    def token_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> TokenLoss:
        """Square what is off in the Bellman equation; see `Surrogate.token_loss`."""
        import torch

        mean_BT = needed(batch.vocabulary_ratio_BT, "vocabulary_ratio_BT", "uniform_value")
        mask_BT = batch.mask_BT.bool()
        # The next drawn token of a row, behind what was read in between.
        next_BT = _following(torch.where(mask_BT, mean_BT, 0.0), mask_BT)
        target_BT = batch.advantages_BT + self.ahead * self.rho * next_BT
        return nothing_clipped((self.rho * log_ratio_BT - target_BT.detach()).square())

    def describe(self) -> str:
        """`uniform_value 1`."""
        return f"uniform_value {self.rho:g}"


def _following(values_BT: "Tensor", mask_BT: "Tensor") -> "Tensor":
    """The value at the next token of the mask, at each token of it; 0 at the last one."""
    import torch

    place_T = torch.arange(mask_BT.shape[1], device=mask_BT.device)
    # Places of tokens that are not drawn lie beyond the row, where a zero stands.
    far = mask_BT.shape[1]
    place_BT = torch.where(mask_BT, place_T, far)
    after_BT = place_BT.flip(1).cummin(1).values.flip(1)
    ends_B1 = after_BT.new_full((len(after_BT), 1), far)
    next_BT = torch.cat([after_BT[:, 1:], ends_B1], dim=1)
    padded_BT = torch.cat([values_BT, values_BT.new_zeros(len(values_BT), 1)], dim=1)
    return padded_BT.gather(1, next_BT)
