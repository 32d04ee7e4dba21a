"""Values as the probability of the outcome, and which stored successes are worth another look."""

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.algorithms.turn_values.base import EpisodeTurns, TurnReadings, TurnValues

if TYPE_CHECKING:
    from torch import Tensor


class OutcomeValues(TurnValues):
    """V is the probability that an episode will be a success, by cross entropy of both heads.

    A turn's advantage is of two estimates: how much likelier the next situation is to succeed, and
    how the episode ended, each less V, the lower head. Of stored episodes the policy learns from
    the successes of earlier steps, and in them from the turns that it is neither sure of already
    nor far from: whose `1 / perplexity` lies within bounds.
    """

    SOURCE = "WebRL, arXiv 2411.02337, equations 8 and 9, and Actor Confidence Filtering"

    kind: Literal["outcome"] = "outcome"
    """A classifier of the outcome."""
    lam: float = Field(default=0.5, ge=0.0, le=1.0)
    """Weight of the next situation's estimate; what is left is that of the outcome."""
    likely_from: float = Field(default=0.5, ge=0.0, lt=1.0)
    """Least `1 / perplexity` of a stored turn by the present policy, its tokens' geometric mean."""
    likely_to: float = Field(default=0.95, gt=0.0, le=1.0)
    """The largest that it learns from again."""

    @model_validator(mode="after")
    def _a_band(self) -> Self:
        if self.likely_from >= self.likely_to:
            raise ValueError(
                f"likely_from {self.likely_from:g} is not below likely_to {self.likely_to:g}, so"
                " that no stored turn lies between them; set it lower"
            )
        return self

    def without_effect(self) -> frozenset[str]:
        """`gamma`, as an outcome is not discounted; the bounds where nothing stored is taught."""
        bounds = {"likely_from", "likely_to"} if self.teach == "present" else set()
        return super().without_effect() | {"gamma"} | bounds

    @property
    def familiar(self) -> tuple[float, float] | None:
        """See `TurnValues.familiar`."""
        return self.likely_from, self.likely_to

    def loss(self, read: TurnReadings, target: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        """Cross entropy of each situation, summed over the heads; see `TurnValues.loss`."""
        from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

        del target
        solved_BKH = (turns.earned_B > 0).float()[:, None, None].expand_as(read.begun_BKH)
        return cross_entropy(read.begun_BKH, solved_BKH, reduction="none").sum(-1)

    def advantages(self, read: TurnReadings, target: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        """``lam (r + V_next - V) + (1 - lam) (r_T - V)``; see `TurnValues.advantages`."""
        import torch

        from posttrain.learning.maths.turn_values import later

        del target
        outcome_B1 = (turns.earned_B > 0).float()[:, None]
        chance_BK1 = read.begun_BKH.sigmoid().amin(-1, keepdim=True)
        next_BK = later(chance_BK1, turns.taken_BK)[..., 0]
        # The outcome is what the last turn is paid, after which no situation follows.
        goes_on_BK = later(turns.taken_BK[..., None].float(), turns.taken_BK)[..., 0] > 0
        ahead_BK = torch.where(goes_on_BK, next_BK, outcome_B1)
        reached_BK = self.lam * ahead_BK + (1 - self.lam) * outcome_B1
        return reached_BK - chance_BK1[..., 0]
