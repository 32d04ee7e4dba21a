"""Wrong rows teach through the policy of right ones that they imply."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.training.row_losses.base import LearnedTokens, RowLoss

if TYPE_CHECKING:
    from torch import Tensor

_LEAST_RATE, _LARGEST_LOG_RATIO = 0.02, 10.0


class NegativeAware(RowLoss):
    """Negative-aware fine-tuning (NFT) on rows that the policy drew itself.

    With the ratio R of the policy to the one that drew the row and the solve rate r of its prompt,
    a right row's token costs ``-log R``, a wrong one's ``-log max((1 - r R) / (1 - r), floor)``,
    whose gradient passes the floor; both are weighted by the prompt. Prompts all of whose rows are
    right, or all wrong, are left out.
    """

    SOURCE = (
        "Bridging Supervised Learning and Reinforcement Learning in Math Reasoning; Chen et al."
        " 2025, arXiv 2505.18116; NVlabs/NFT at b358fae, dp_actor.py"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"judgments", "mixed_prompts", "reference"})

    kind: Literal["negative_aware"] = "negative_aware"
    floor: float = Field(default=1.0, gt=0.0)
    """Least argument of the wrong rows' logarithm; 1 as in the authors' scripts."""
    negative_weight: float = Field(default=1.0, ge=0.0)
    """Weight of wrong rows; 0 is fine-tuning by rejection sampling."""
    prompt_weight: Literal["none", "failures", "deviation"] = "failures"
    """Of a prompt of solve rate r: 1, ``1 - r`` (as Dr.GRPO), or ``sqrt((1 - r) / r)`` (GRPO)."""

    def losses(self, tokens: LearnedTokens) -> "Tensor":
        """Take one term or the other by the row; see `RowLoss.losses`."""
        import torch

        rate_N = tokens.solve_rates_N.clamp(_LEAST_RATE, 1 - _LEAST_RATE)
        log_ratio_N = (tokens.logprobs_N - tokens.reference_N).clamp(max=_LARGEST_LOG_RATIO)
        negative_N = (1 - rate_N * log_ratio_N.exp()) / (1 - rate_N)
        # The value is held, and the gradient passes as if it were not.
        held_N = negative_N + (negative_N.clamp(min=self.floor) - negative_N).detach()
        losses_N = torch.where(
            tokens.positives_N, -log_ratio_N, -self.negative_weight * held_N.log()
        )
        weights_N = {
            "none": torch.ones_like(rate_N),
            "failures": 1 - rate_N,
            "deviation": ((1 - rate_N) / rate_N).sqrt(),
        }[self.prompt_weight]
        return weights_N * losses_N
