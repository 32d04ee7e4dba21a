"""Advantages from the values of a critic."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.advantages.base import Advantage
from posttrain.learning.algorithms.advantages.returns import token_rewards, turn_rewards
from posttrain.learning.algorithms.batches import RolloutBatch, TokenCost, needed

if TYPE_CHECKING:
    from torch import Tensor


class GaeAdvantage(Advantage):
    """Generalized advantage estimation from the values of a critic.

    By turns an action is all that the policy says at once: the critic is read where a turn begins,
    its target is that turn's return, and all tokens of the turn share its advantage.

    `A_t = Σ_k (gamma lam)^k d_{t+k}`, `d_t = r_t + gamma V_{t+1} - V_t`, and 0 behind the last one.
    """

    SOURCE = "arXiv 1506.02438, equation 16; by turns: ArCHer, arXiv 2402.19446, section 3.2"
    CREDITS: ClassVar[frozenset[str]] = frozenset({"turn", "token"})

    kind: Literal["gae"] = "gae"
    """Compare each token with what the critic expected."""
    unit: Literal["token", "turn"] = "token"
    """What is one action: a token, or all that is said in one turn of an episode."""
    gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount per token, or per turn where that is the unit."""
    lam: float = Field(default=1.0, ge=0.0, le=1.0)
    """Decay of the trace: 1 trusts the rewards alone, 0 the critic alone."""

    @property
    def needs(self) -> frozenset[str]:
        """The critic's values, and turns where those are the unit."""
        return frozenset({"values", "turns"} if self.unit == "turn" else {"values"})

    def estimate(
        self,
        rollouts: RolloutBatch,
        *,
        rewards_B: "Tensor",
        costs: Sequence[TokenCost],
        include_B: "Tensor | None",
    ) -> "tuple[Tensor, Tensor | None]":
        """Sum the discounted surprises of the critic; see `Advantage.estimate`. ``[B, T]``."""
        from posttrain.learning.maths.gae import generalized_advantages

        if self.unit == "turn":
            return self._by_turns(rollouts, rewards_B, costs)
        mask_BT = needed(rollouts.mask_BT, "mask_BT", "credit by tokens")
        rewards_BT = token_rewards(rewards_B, mask_BT, costs)
        values_BT = needed(rollouts.values_BT, "values_BT", "advantage gae")
        return generalized_advantages(
            rewards_BT,
            values_BT.to(rewards_BT.dtype),
            mask_BT=mask_BT,
            gamma=self.gamma,
            lam=self.lam,
        )

    def _by_turns(
        self, rollouts: RolloutBatch, rewards_B: "Tensor", costs: Sequence[TokenCost]
    ) -> "tuple[Tensor, Tensor]":
        import torch

        from posttrain.learning.maths.gae import generalized_advantages
        from posttrain.learning.maths.segments import first_of_each

        turn_BT = needed(rollouts.turn_BT, "turn_BT", "credit by turns")
        values_BT = needed(rollouts.values_BT, "values_BT", "advantage gae")
        rewards_BK = turn_rewards(rollouts, rewards_B, costs)
        first_BK, taken_BK = first_of_each(turn_BT, rewards_BK.shape[1])
        found = generalized_advantages(
            rewards_BK,
            values_BT.to(rewards_BK.dtype).gather(1, first_BK),
            mask_BT=taken_BK,
            gamma=self.gamma,
            lam=self.lam,
        )
        place_BT = turn_BT.clamp(min=0)
        advantages_BT, returns_BT = (
            torch.where(turn_BT >= 0, each_BK.gather(1, place_BT), 0.0) for each_BK in found
        )
        return advantages_BT, returns_BT

    def _name(self) -> str:
        by = " by turns" if self.unit == "turn" else ""
        return f"gae {self.gamma:g} {self.lam:g}{by}"
