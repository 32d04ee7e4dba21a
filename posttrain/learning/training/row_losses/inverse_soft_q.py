"""Imitation as inverse reinforcement learning: the logits are the values of a soft Q-function."""

import math
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.training.row_losses.base import LearnedTokens, RowLoss

if TYPE_CHECKING:
    from torch import Tensor


class InverseSoftQ(RowLoss):
    """IQ-Learn on given rows: the f-divergence to the rows' states and tokens, by soft values.

    Logits are Q and their log-sum-exp is V, so that ``r = Q(s, a) - gamma V(s')`` is the reward
    that the policy implies, with V 0 behind the end. The loss is ``-phi(r) + V(s) - gamma V(s')``;
    with chi-squared that is ``-log p + coefficient r^2``: cross-entropy, and a temporal difference
    that is held small.
    """

    SOURCE = (
        "IQ-Learn; Garg et al. 2021, arXiv 2106.12142, table 1 and Div97/IQ-Learn, iq.py; for"
        " language: Imitating Language via Scalable Inverse Reinforcement Learning; Wulfmeier et"
        " al. 2024, arXiv 2409.01369"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"normalizers"})

    kind: Literal["inverse_soft_q"] = "inverse_soft_q"
    divergence: Literal["chi_squared", "hellinger", "jensen_shannon", "reverse_kl"] = "chi_squared"
    """Of the rows from the policy; phi is r - coefficient r^2, r / (1 + r), log(2 - exp(-r)), or
    -exp(-(r + 1))."""
    coefficient: float = Field(default=0.1, ge=0.0)
    """Of the squared reward, with `chi_squared` alone; 0 is cross-entropy."""
    gamma: float = Field(default=1.0, gt=0.0, le=1.0)
    """Discount of the next token's value."""

    def without_effect(self) -> frozenset[str]:
        """`coefficient` with another divergence."""
        return frozenset({"coefficient"} if self.divergence != "chi_squared" else ())

    def losses(self, tokens: LearnedTokens) -> "Tensor":
        """Compute the reward of every token, and what it costs; see `RowLoss.losses`."""
        import torch

        value_N = tokens.normalizers_N
        assert value_N is not None
        after_N = torch.cat([value_N[1:], value_N.new_zeros(1)])
        next_N = self.gamma * torch.where(tokens.ends_N, 0.0 * after_N, after_N)
        reward_N = tokens.logprobs_N + value_N - next_N
        return value_N - next_N - _PHI[self.divergence](reward_N, self.coefficient)


def _chi_squared(reward_N: "Tensor", coefficient: float) -> "Tensor":
    return reward_N - coefficient * reward_N.square()


def _hellinger(reward_N: "Tensor", _: float) -> "Tensor":
    kept_N = reward_N.clamp(min=_BEYOND - 1)
    return kept_N / (1 + kept_N)


def _jensen_shannon(reward_N: "Tensor", _: float) -> "Tensor":
    return (2 - (-reward_N.clamp(min=_BEYOND - math.log(2))).exp()).log()


def _reverse_kl(reward_N: "Tensor", _: float) -> "Tensor":
    return -(-reward_N.clamp(min=-_LARGEST) - 1).exp()


# Rewards below where a function is defined, or would overflow, are held there.
_BEYOND, _LARGEST = 1e-3, 20.0
_PHI = {
    "chi_squared": _chi_squared,
    "hellinger": _hellinger,
    "jensen_shannon": _jensen_shannon,
    "reverse_kl": _reverse_kl,
}
