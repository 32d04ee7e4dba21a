"""Advantages from the values of a critic, also of answers that are not over yet."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.advantages.base import Advantage
from posttrain.learning.algorithms.advantages.returns import token_rewards
from posttrain.learning.algorithms.batches import Bearing, RolloutBatch, TokenCost, needed

if TYPE_CHECKING:
    from torch import Tensor


class EgaeAdvantage(Advantage):
    """Extended generalized advantage estimation, for answers that are drawn window by window.

    An answer that goes on in a later step has no reward yet, and no value behind its last token:
    the value before that token stands for it. The policy learns from the tokens that the present
    step drew, the critic from all tokens of the answers that are over, and its target is their
    return. Of answers that are drawn whole it is generalized advantage estimation, with a critic
    that learns by lambda 1.

    `A_t = Σ_k (gamma lam)^k d_{t+k}`, `d_t = r_t + gamma V_{t+1} - V_t`, where behind the last
    token T of an answer that is not over `V_{T+1} = V_T`.
    """

    SOURCE: ClassVar[str] = (
        "T-PPO, arXiv 2506.15050; HanlinDu/verl at 5a669211, recipe/tppo/tppo_algos.py"
        " (compute_truncate_gae_advantage_return), tppo_trainer.py (compute_advantage_tppo);"
        " lambda by length: VAPO, arXiv 2504.05118"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"values", "windows"})

    kind: Literal["egae"] = "egae"
    """Compare each token of the present window with what the critic expected."""
    gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount per token."""
    lam: float = Field(default=0.95, ge=0.0, le=1.0)
    """Decay of the trace: 1 trusts the rewards alone, 0 the critic alone."""
    alpha: float | None = Field(default=None, gt=0.0)
    """Lets the decay grow with the length l of an answer, to `1 - 1 / (alpha l)`, where that is
    more than `lam`; of one that is not over l is half a window more than its tokens. Null keeps
    `lam`."""
    tail: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of an unfinished window, its last tokens, from which the policy does not learn: their
    advantages hang on the guessed value the most. In tokens, rounded down."""

    def estimate(
        self,
        rollouts: RolloutBatch,
        *,
        rewards_B: "Tensor",
        costs: Sequence[TokenCost],
        include_B: "Tensor | None",
    ) -> "tuple[Tensor, Tensor | None]":
        """Sum the discounted surprises of the critic; see `Advantage.estimate`. ``[B, T]``."""
        import torch

        from posttrain.learning.maths.gae import discounted_returns, generalized_advantages

        mask_BT, unfinished_B, _ = self._windows(rollouts)
        values_BT = needed(rollouts.values_BT, "values_BT", "advantage egae").to(rewards_B.dtype)
        last_B1 = mask_BT.sum(-1, keepdim=True).clamp(min=1) - 1
        behind_B = self.gamma * values_BT.gather(1, last_B1)[:, 0]
        paid_B = torch.where(unfinished_B, behind_B, rewards_B)
        rewards_BT = token_rewards(paid_B, mask_BT, costs)
        found_BT, _ = generalized_advantages(
            rewards_BT, values_BT, mask_BT=mask_BT, gamma=self.gamma, lam=self._decay(rollouts)
        )
        return found_BT, discounted_returns(rewards_BT, mask_BT, gamma=self.gamma)

    def bearing(self, rollouts: RolloutBatch) -> Bearing:
        """The present window, but for its tail, and answers that are over; see the base."""
        import torch

        mask_BT, unfinished_B, window_BT = self._windows(rollouts)
        known_B = torch.ones_like(unfinished_B)
        if rollouts.scored_B is not None:
            known_B = rollouts.scored_B.bool()
        tail_B = torch.where(unfinished_B, (self.tail * window_BT.sum(-1)).floor(), 0)
        before_BT = torch.arange(mask_BT.shape[1]) < (mask_BT.sum(-1) - tail_B)[:, None]
        return Bearing(
            policy_BT=window_BT & before_BT & (known_B | unfinished_B)[:, None],
            critic_BT=mask_BT & (known_B & ~unfinished_B)[:, None],
        )

    def _windows(self, rollouts: RolloutBatch) -> "tuple[Tensor, Tensor, Tensor]":
        """The drawn tokens, who is not over, and those of the present step."""
        import torch

        mask_BT = needed(rollouts.mask_BT, "mask_BT", "advantage egae").bool()
        earlier_B = needed(rollouts.earlier_B, "earlier_B", "advantage egae")
        unfinished_B = needed(rollouts.unfinished_B, "unfinished_B", "advantage egae").bool()
        window_BT = mask_BT & (torch.arange(mask_BT.shape[1]) >= earlier_B[:, None])
        return mask_BT, unfinished_B, window_BT

    def _decay(self, rollouts: RolloutBatch) -> "float | Tensor":
        """Lambda, or one for each answer. ``[B]``."""
        import torch

        if self.alpha is None:
            return self.lam
        mask_BT, unfinished_B, window_BT = self._windows(rollouts)
        more_B = torch.where(unfinished_B, window_BT.sum(-1) // 2, 0)
        length_B = (mask_BT.sum(-1) + more_B).clamp(min=1)
        return (1 - 1 / (self.alpha * length_B.double())).clamp(min=self.lam)

    def _name(self) -> str:
        grows = "" if self.alpha is None else f" or 1 - 1/{self.alpha:g}l"
        return f"egae {self.gamma:g} {self.lam:g}{grows}"
