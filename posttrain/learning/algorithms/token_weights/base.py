"""What all token weights share: when they are computed, and from what."""

from typing import TYPE_CHECKING, ClassVar

from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch
from posttrain.learning.algorithms.part import AlgorithmFacts, AlgorithmPart

if TYPE_CHECKING:
    from torch import Tensor


class TokenWeight(AlgorithmPart):
    """A factor on the loss of each token; no gradient flows through it.

    A part says its weights once for a whole generation, which lets it rank its tokens (by entropy,
    say), or anew in every update, or both: what a method leaves out is 1.
    """

    COMPARES_POLICIES: ClassVar[bool] = False
    """True where the weight is a ratio of the old policy to the engine."""
    CORRECTS_ENGINE: ClassVar[bool] = False
    """True where rollouts of an older policy are weighed so that the gradient is unbiased."""

    def of_generation(self, rollouts: RolloutBatch, advantages_BT: "Tensor") -> "Tensor | None":
        """Weigh the tokens of a whole generation, before its first update.

        Args:
            rollouts: The whole generation, with what the part needs.
            advantages_BT: `[B, T]`, or `[B, 1]` where all tokens of a rollout share one.

        Returns:
            Weights `[B, T]` or `[B, 1]`; None for no weights of this kind.

        """
        return None

    def of_update(
        self, logprobs_BT: "Tensor", *, old_logprobs_BT: "Tensor", batch: PolicyBatch
    ) -> "Tensor | None":
        """Weigh the tokens of some rollouts in one update.

        Args:
            logprobs_BT: Of the policy that learns, in nats, without gradient.
            old_logprobs_BT: Of the policy that the ratio compares with.
            batch: The rollouts, with what the part needs.

        Returns:
            Weights `[B, T]` or `[B, 1]`, numbers or truth values; None for no weights of this kind.

        """
        return None

    def refusal(self, algorithm: AlgorithmFacts) -> str | None:
        """Two policies are compared only where there are two."""
        if not (self.COMPARES_POLICIES and algorithm.old_policy == "engine"):
            return None
        return (
            f"token weight {self.kind} compares the old policy with the engine, but old_policy is"
            " engine, so all weights are 1; set old_policy to recomputed or interpolated, or leave"
            " it out"
        )
