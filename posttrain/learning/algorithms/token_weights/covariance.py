"""Some of the tokens that take most entropy away lose their loss."""

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.algorithms.batches import RolloutBatch, needed
from posttrain.learning.algorithms.token_weights.base import TokenWeight
from posttrain.stage.seeds import shuffler

if TYPE_CHECKING:
    from torch import Tensor


class CovarianceWeight(TokenWeight):
    """0 at tokens drawn by chance of those whose covariance lies in a band, 1 at all others.

    A token's covariance is `(A - mean A) (log p - mean log p)`, with means over the generation's
    drawn tokens and p of what sampled: Clip-Cov. Tokens that lose their loss stay in the
    denominator. What was drawn decides the chance, so that a step that is run again drops the same.
    """

    SOURCE = (
        "Clip-Cov, arXiv 2505.22617; PRIME-RL/Entropy-Mechanism-of-RL at 8850579,"
        " verl/trainer/ppo/core_algos.py (compute_policy_loss_clip_cov)"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"generation_logprobs", "token_ids"})

    kind: Literal["covariance"] = "covariance"
    """Some tokens of high covariance between advantage and log-probability bear no loss."""
    share: float = Field(default=0.0002, gt=0.0, le=1.0)
    """Most tokens that lose their loss, of the generation's drawn ones; at least one does."""
    low: float = 1.0
    """Covariance above which a token may be drawn."""
    high: float = 5.0
    """Covariance below which it may; what lies above is taken for an outlier."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low {self.low:g} is not below high {self.high:g}; make it so")
        return self

    def of_generation(self, rollouts: RolloutBatch, advantages_BT: "Tensor") -> "Tensor | None":
        """Draw tokens of the band; see `TokenWeight.of_generation`."""
        import torch

        from posttrain.learning.maths.covariance import joint_deviations

        what = "token weight covariance"
        mask_BT = needed(rollouts.mask_BT, "mask_BT", what).bool()
        logprobs_BT = needed(rollouts.sampled_logprobs_BT, "sampled_logprobs_BT", what)
        ids_BT = needed(rollouts.token_ids_BT, "token_ids_BT", what)
        found_BT = joint_deviations(advantages_BT, logprobs_BT, mask_BT)
        inside_BT = (found_BT > self.low) & (found_BT < self.high)
        places = inside_BT.flatten().nonzero().flatten().tolist()
        # 0.29 x 100 is 28.999999999999996 for a computer, and 29 tokens are meant.
        most = max(1, int(self.share * int(mask_BT.sum()) + 1e-9))
        chance = shuffler("covariance", *ids_BT[mask_BT].tolist())
        dropped = chance.sample(places, min(most, len(places)))
        weights_BT = torch.ones_like(found_BT)
        weights_BT.view(-1)[torch.tensor(dropped, dtype=torch.long)] = 0.0
        return weights_BT

    def describe(self) -> str:
        """`0.02% of covariance 1 to 5 dropped`."""
        return f"{self.share:.2%} of covariance {self.low:g} to {self.high:g} dropped"
