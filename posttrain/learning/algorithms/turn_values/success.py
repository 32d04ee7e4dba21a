"""Values as classifiers: will this episode be a success?"""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.algorithms.turn_values.base import EpisodeTurns, TurnReadings, TurnValues

if TYPE_CHECKING:
    from torch import Tensor


class SuccessValues(TurnValues):
    """Both heads of V, and one of the problem alone, tell successes apart by cross entropy.

    A turn's advantage is how much likelier it made the success, less a margin, with what it was
    paid and what followed in fact. The policy may learn from the stored episodes that went better
    than their problem had it, the highest of what they earned less its probability of success.
    """

    SOURCE = "DigiRL, arXiv 2406.11896, section 4.2, and DigiRL-agent/digirl at 53320f6"

    kind: Literal["success"] = "success"
    """Classifiers of success."""
    gamma: float = Field(default=0.5, ge=0.0, le=1.0)
    """Discount by turns of what followed in fact."""
    margin: float = Field(default=0.05, ge=0.0)
    """By how much a turn must make a success likelier."""
    keep: float = Field(default=0.1, gt=0.0, le=1.0)
    """Share of the stored episodes that the policy may learn from."""

    @property
    def kept(self) -> float:
        """See `TurnValues.kept`."""
        return self.keep

    def loss(self, read: TurnReadings, target: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        """Cross entropy of situations, before a turn and after one; see `TurnValues.loss`."""
        import torch
        from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

        del target
        solved_B = (turns.earned_B > 0).float()
        solved_BKH = solved_B[:, None, None].expand_as(read.begun_BKH)
        of_begun_BK = cross_entropy(read.begun_BKH, solved_BKH, reduction="none").sum(-1)
        of_posed_B = cross_entropy(read.posed_B, solved_B, reduction="none")
        first_B1, later_BK = of_begun_BK[:, :1] + of_posed_B[:, None], 2 * of_begun_BK[:, 1:]
        return torch.cat([first_B1, later_BK], dim=1)

    def advantages(self, read: TurnReadings, target: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        """``V_next - V - margin + r + return``, within [-1, 1]; see `TurnValues.advantages`."""
        from posttrain.learning.maths.gae import discounted_returns
        from posttrain.learning.maths.turn_values import later

        del target
        chance_BK1 = read.begun_BKH.sigmoid().amin(-1, keepdim=True)
        likelier_BK = (later(chance_BK1, turns.taken_BK) - chance_BK1)[..., 0]
        followed_BK = discounted_returns(turns.rewards_BK, turns.taken_BK, gamma=self.gamma)
        return (likelier_BK - self.margin + turns.rewards_BK + followed_BK).clamp(-1.0, 1.0)

    def standing(self, read: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        """What was earned less the chance that the problem had; see `TurnValues.standing`."""
        return turns.earned_B - read.posed_B.sigmoid()
