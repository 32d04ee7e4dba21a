"""Advantages at the tokens by which a model of outcomes tells how a rollout will end."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.advantages.group import GroupRelative
from posttrain.learning.algorithms.batches import RolloutBatch, TokenCost, needed

if TYPE_CHECKING:
    from torch import Tensor


class OutcomeCreditAdvantage(GroupRelative):
    """A group's advantage of each rollout, times `clamp((p - tau) / (1 - tau), 0, 1)` at a token.

    p is how likely the critic holds it that the rollout ends as it did: right, where its advantage
    is above 0, by `sigmoid` of the mean of the critic's values so far, else wrong. The critic's
    target is whether it is right (reward above 0), by `critic.target: outcome`. Its values begin
    at 0, so that at `tau` 0.5 it learns first, and the policy as far as it has.
    """

    SOURCE = (
        "OREAL, arXiv 2502.06781; InternLM/OREAL at 2859cc0, train_oreal.py (token_level_rm,"
        " threshold_rescale)"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"values"})
    CRITIC: ClassVar[Literal["return", "outcome"]] = "outcome"

    kind: Literal["outcome_credit"] = "outcome_credit"
    """Learn where it could be told how the rollout ends."""
    tau: float = Field(default=0.5, ge=0.0, lt=1.0)
    """The probability of the outcome up to which a token bears nothing."""

    def estimate(
        self,
        rollouts: RolloutBatch,
        *,
        rewards_B: "Tensor",
        costs: Sequence[TokenCost],
        include_B: "Tensor | None",
    ) -> "tuple[Tensor, Tensor | None]":
        """Compare rollouts, then ask the critic; see `Advantage.estimate`. ``[B, T]``."""
        import torch

        plain_B1 = self._of_rollouts(
            self._less_costs(rewards_B, rollouts, costs), rollouts, include_B
        )[:, None]
        if rollouts.values_BT is None:
            # Which groups differ is asked before any pass over them, and is told by rewards alone.
            return plain_B1, None
        mask_BT = needed(rollouts.mask_BT, "mask_BT", "advantage outcome_credit").bool()
        values_BT = torch.where(mask_BT, rollouts.values_BT, 0.0).to(plain_B1.dtype)
        so_far_BT = values_BT.cumsum(-1) / mask_BT.cumsum(-1).clamp(min=1)
        expected_BT = (so_far_BT * torch.where(plain_B1 > 0, 1.0, -1.0)).sigmoid()
        weight_BT = ((expected_BT - self.tau) / (1.0 - self.tau)).clamp(0.0, 1.0)
        right_B1 = (rollouts.rewards_B > 0).to(plain_B1.dtype)[:, None]
        return torch.where(mask_BT, plain_B1 * weight_BT, 0.0), right_B1 * mask_BT

    def _name(self) -> str:
        return f"{super()._name()} by outcome"
