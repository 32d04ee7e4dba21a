"""The chi-squared divergence of the policy from the reference, over whole sequences."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import RolloutBatch, needed
from posttrain.learning.algorithms.regularizers.base import Regularizer

if TYPE_CHECKING:
    from torch import Tensor

_LEAST = 1e-2
"""Divergence below which the root is a line, as its slope would be that of rounding errors."""


class SequenceChiSquaredRegularizer(Regularizer):
    """Each rollout pays `(W - 1) / sqrt(mean W - 1)`, `W = pi(o) / pi_ref(o)` of all its tokens.

    `mean W - 1`, over a generation that the policy drew, is chi-squared of the policy from the
    reference; the price has the gradient of its square root. Without the root a rollout pays
    `2 (W - 1)`, the gradient of chi-squared itself. Unlike a divergence by tokens it is ruled by
    the few rollouts that the reference would hardly have said. The price is due at the last token.
    """

    SOURCE = (
        "Correlated Proxies, arXiv 2403.03185, section 5; cassidylaidlaw/orpo at 95cd1fa,"
        " agents/orpo.py (_sqrt_chi2_discriminator_rewards)"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"rewards_reference"})

    kind: Literal["sequence_chi_squared"] = "sequence_chi_squared"
    """Whole answers must stay ones that the reference might give."""
    root: bool = True
    """Take the square root of the divergence, of which the paper's bound is."""
    ceiling: float = Field(default=5.0, gt=0.0)
    """Largest log-ratio of a sequence that counts, in nats."""

    def token_cost(self, rollouts: RolloutBatch) -> "Tensor | None":
        """Price each rollout at its last token; see `Regularizer.token_cost`."""
        import torch

        from posttrain.learning.maths.reduce import masked_sum

        what = "sequence_chi_squared"
        sampled_BT = needed(rollouts.sampled_logprobs_BT, "sampled_logprobs_BT", what)
        reference_BT = needed(rollouts.reference_logprobs_BT, "reference_logprobs_BT", what)
        mask_BT = needed(rollouts.mask_BT, "mask_BT", what).bool()
        log_ratio_B = masked_sum(sampled_BT - reference_BT, mask_BT, -1)
        excess_B = torch.expm1(log_ratio_B.clamp(max=self.ceiling))
        divergence = excess_B.mean().clamp(min=_LEAST)
        price_B = excess_B / divergence.sqrt() if self.root else 2 * excess_B
        place_T = torch.arange(mask_BT.shape[1], device=mask_BT.device)
        last_B = torch.where(mask_BT, place_T, -1).amax(-1, keepdim=True)
        return torch.where(mask_BT & (place_T == last_B), price_B.unsqueeze(-1), 0.0)

    def describe(self) -> str:
        """`sequence_chi_squared 0.1 root`."""
        return f"sequence_chi_squared {self.coefficient:g}" + (" root" if self.root else "")
