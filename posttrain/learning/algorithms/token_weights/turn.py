"""Turns of an episode that count alike, however much is said in them."""

from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.algorithms.batches import RolloutBatch, needed
from posttrain.learning.algorithms.token_weights.base import TokenWeight

if TYPE_CHECKING:
    from torch import Tensor


class TurnWeight(TokenWeight):
    """`n / (K n_k)` at each of the `n_k` tokens of a turn: all K turns of a rollout count alike.

    With `aggregation: sequence_mean_token_mean` the loss is then the mean over rollouts, of the
    mean over their turns, of the mean over the tokens of a turn.
    """

    SOURCE = "M-GRPO of WebAgent-R1, arXiv 2505.16421, section 2.3"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"turns"})

    kind: Literal["turn"] = "turn"
    """Weigh by turns; on average over a rollout 1."""

    def of_generation(self, rollouts: RolloutBatch, advantages_BT: "Tensor") -> "Tensor | None":  # noqa: ARG002
        """Weigh each turn's tokens; see `TokenWeight.of_generation`."""
        import torch

        turn_BT = needed(rollouts.turn_BT, "turn_BT", "token weight turn")
        drawn_BT = turn_BT >= 0
        place_BT = turn_BT.clamp(min=0)
        # float32, as what it multiplies.
        ones_BT = drawn_BT.float()
        size_BK = ones_BT.new_zeros(len(turn_BT), int(place_BT.max()) + 1)
        size_BK = size_BK.scatter_add(1, place_BT, ones_BT)
        turns_B = (size_BK > 0).sum(-1, keepdim=True).clamp(min=1)
        shared_BT = turns_B * size_BK.gather(1, place_BT).clamp(min=1)
        return torch.where(drawn_BT, drawn_BT.sum(-1, keepdim=True) / shared_BT, 0.0)

    def describe(self) -> str:
        """`turn`."""
        return "turn"
