"""Two surrogates, of which a number says which one holds: a policy gradient that changes."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, WithJsonSchema

from posttrain.learning.algorithms.batches import PolicyBatch, TokenLoss
from posttrain.learning.algorithms.part import AlgorithmFacts
from posttrain.learning.algorithms.surrogates.base import Surrogate
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from torch import Tensor

# A schema of surrogates within surrogates would have no end.
_ANY_SURROGATE = {"type": "object", "required": ["kind"]}


class ByPhaseSurrogate(Surrogate):
    """`(1 - phase)` times the loss of the first surrogate, plus `phase` times that of the second.

    `phase: {from: 0, to: 1, over: 1, after: 99}` lets the second one hold from step 100 on, a
    longer `over` fades from one to the other, and `metric` lets a figure decide, forth and back.
    Optimizer, curve and all else of the stage go on. At 0 and at 1 the other one is not computed.
    """

    SOURCE = "own: a change from one loss to another, each of which says its source"

    kind: Literal["by_phase"] = "by_phase"
    """One loss, and from some step or figure on another."""
    first: Annotated[Surrogate, InSlot("surrogate"), WithJsonSchema(_ANY_SURROGATE)]
    """What holds at phase 0."""
    second: Annotated[Surrogate, InSlot("surrogate"), WithJsonSchema(_ANY_SURROGATE)]
    """What holds at phase 1."""
    phase: float = Field(ge=0.0, le=1.0)
    """Share of the second one in the loss; meant to be a schedule."""

    @property
    def HAS_RATIO(self) -> bool:  # type: ignore[override]  # noqa: N802 - of two parts, not of a class
        """True where both have one: rollouts of other policies must suit whichever holds."""
        return self.first.HAS_RATIO and self.second.HAS_RATIO

    @property
    def PLAIN_AT_ONE(self) -> bool:  # type: ignore[override]  # noqa: N802 - as above
        """True where both are REINFORCE while the ratio is 1."""
        return self.first.PLAIN_AT_ONE and self.second.PLAIN_AT_ONE

    @property
    def needs(self) -> frozenset[str]:
        """What either of them asks for, whichever holds."""
        return self.first.needs | self.second.needs

    def token_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> TokenLoss:
        """Ask the one that holds, or mix both; see `Surrogate.token_loss`."""
        if self.phase in (0.0, 1.0):
            holds = self.second if self.phase else self.first
            return holds.token_loss(logprobs_BT, log_ratio_BT, batch)
        (one_BT, one_clipped_BT), (other_BT, other_clipped_BT) = (
            each.token_loss(logprobs_BT, log_ratio_BT, batch) for each in (self.first, self.second)
        )
        loss_BT = (1 - self.phase) * one_BT + self.phase * other_BT
        return TokenLoss(loss_BT, one_clipped_BT | other_clipped_BT)

    def refusal(self, algorithm: AlgorithmFacts) -> str | None:
        """Say what either of them refuses."""
        return self.first.refusal(algorithm) or self.second.refusal(algorithm)

    def describe(self) -> str:
        """`clip token -0.2 +0.28, then reinforce, at 0`."""
        return f"{self.first.describe()}, then {self.second.describe()}, at {self.phase:g}"
