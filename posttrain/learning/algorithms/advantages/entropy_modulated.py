"""Advantages that are larger where the policy was sure of what it said."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.advantages.group import GroupRelative
from posttrain.learning.algorithms.batches import RolloutBatch, TokenCost, needed

if TYPE_CHECKING:
    from torch import Tensor


class EntropyModulatedAdvantage(GroupRelative):
    """A group's advantage of each rollout, turn by turn larger the surer the policy was of it.

    `g(h) A + clarity f(h')`, less its mean over all turns: `h` is a turn's mean entropy, scaled to
    [0, 1] over the generation, `g` is `exp(-sharpness h)` over its mean, and `f` is
    `exp(-clarity_sharpness h')` of the turn that follows, 0 after the last one.
    """

    SOURCE = "EMPG, arXiv 2509.09265, equations 8 to 12"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"generation_entropy", "turns"})

    kind: Literal["entropy_modulated"] = "entropy_modulated"
    """Confident turns count more, for better or worse, and lead on to confident ones."""
    sharpness: float = Field(default=1.0, ge=0.0)
    """How much faster sure turns are learned from; 0 for all alike."""
    clarity: float = Field(default=0.1, ge=0.0)
    """What a turn is paid for a sure one behind it."""
    clarity_sharpness: float = Field(default=1.0, ge=0.0)
    """How much surer turns are paid more."""

    def estimate(
        self,
        rollouts: RolloutBatch,
        *,
        rewards_B: "Tensor",
        costs: Sequence[TokenCost],
        include_B: "Tensor | None",
    ) -> "tuple[Tensor, Tensor | None]":
        """Compare rollouts, then modulate their turns; see `Advantage.estimate`. ``[B, T]``."""
        import torch

        rewards_B = self._less_costs(rewards_B, rollouts, costs)
        plain_B1 = self._of_rollouts(rewards_B, rollouts, include_B)[:, None]
        if rollouts.entropy_BT is None:
            # Which groups differ is asked before any pass over them, and is told by rewards alone.
            return plain_B1, None
        turn_BT = needed(rollouts.turn_BT, "turn_BT", "entropy_modulated")
        place_BT, drawn_BT = turn_BT.clamp(min=0), (turn_BT >= 0).to(plain_B1.dtype)
        zeros_BK = plain_B1.new_zeros(len(turn_BT), int(place_BT.max()) + 1)
        size_BK = zeros_BK.scatter_add(1, place_BT, drawn_BT)
        sum_BK = zeros_BK.scatter_add(1, place_BT, drawn_BT * rollouts.entropy_BT)
        said_BK, entropy_BK = size_BK > 0, sum_BK / size_BK.clamp(min=1)
        said_N = entropy_BK[said_BK]
        scaled_BK = (entropy_BK - said_N.min()) / (said_N.max() - said_N.min() + 1e-8)
        sure_BK = (-self.sharpness * scaled_BK).exp()
        factor_BK = sure_BK / (sure_BK[said_BK].mean() + 1e-8)
        clear_BK = torch.where(said_BK, (-self.clarity_sharpness * scaled_BK).exp(), 0.0)
        next_BK = torch.cat([clear_BK[:, 1:], zeros_BK[:, :1]], -1)
        made_BK = factor_BK * plain_B1 + self.clarity * next_BK
        made_BK = made_BK - made_BK[said_BK].mean()
        return torch.where(turn_BT >= 0, made_BK.gather(1, place_BT), 0.0), None

    def _name(self) -> str:
        return f"{super()._name()} by certainty"
