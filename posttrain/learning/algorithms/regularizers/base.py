"""What all regularizers share: a coefficient, and three places where they may act."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch
from posttrain.learning.algorithms.part import AlgorithmPart

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.maths.reduce import Aggregation, Metrics


class BatchShare(NamedTuple):
    """How this part of a batch counts in the loss of the whole batch."""

    mask_BT: "Tensor"
    aggregation: "Aggregation"
    denominator: "Tensor | float"


class Regularizer(AlgorithmPart):
    """What is added to rewards, advantages or loss beside the surrogate."""

    METRICS: ClassVar[Mapping[str, str]] = {}
    """What its `loss` measures, with a description; in the curve as ``rl/<name>``, which schedules
    and the rule for stopping may follow. What is measured and not declared ends the run."""

    MARKS: ClassVar[bool] = False
    """True where it says of a whole generation, by `marks`, which of the tokens it acts on."""
    FOLLOWS: ClassVar[str] = ""
    """One of `METRICS`, of which its `loss` is told what it was in the run's first update and what
    it is on average, as `past_2` of the batch; none for nothing."""

    coefficient: float = Field(gt=0.0)
    """Its weight."""

    @property
    def metrics(self) -> Mapping[str, str]:
        """Those of `METRICS` that it measures as its fields are; all, if not overridden.

        In the curve the name of one whose kind stands twice is ``rl/<name in the recipe>/<name>``.
        """
        return self.METRICS

    def token_cost(self, rollouts: RolloutBatch) -> "Tensor | None":
        """Give what each token costs in the reward, before the coefficient.

        Args:
            rollouts: A whole generation, with what the part needs.

        Returns:
            Costs `[B, T]`; None where rewards pay for nothing.

        """
        return None

    def marks(self, rollouts: RolloutBatch, advantages_BT: "Tensor") -> "Tensor | None":
        """Say which tokens it acts on, before a generation's first update.

        Args:
            rollouts: The whole generation, with what the part needs.
            advantages_BT: `[B, T]`, or `[B, 1]` where all tokens of a rollout share one.

        Returns:
            Numbers `[B, T]`, which `loss` finds as `mark_BT` of its batch; None where it is not
            asked, as `MARKS` says.

        """
        return None

    def advantage_bonus(self, old_logprobs_BT: "Tensor") -> "Tensor | None":
        """Give what is added to the advantage of each token, with the coefficient.

        Args:
            old_logprobs_BT: Of the policy that the ratio compares with, in nats.

        Returns:
            Bonuses `[B, T]`; None for none.

        """
        return None

    @property
    def changes_advantages(self) -> bool:
        """True where `advantage_bonus` gives something."""
        return False

    def of_distributions(self, policy_NV: "Tensor", reference_NV: "Tensor") -> "Tensor":
        """Compare the policy's whole distributions with the reference's, a slice of tokens at once.

        It is asked where the part needs `reference_divergence`, and of each token by itself.

        Args:
            policy_NV: Log-probabilities of the whole vocabulary, with gradient.
            reference_NV: Those of the reference.

        Returns:
            A number for each token `[N]`, which `loss` finds as `divergence_BT` of its batch.

        """
        raise NotImplementedError

    def loss(
        self,
        logprobs_BT: "Tensor",
        *,
        log_ratio_BT: "Tensor",
        entropy_BT: "Tensor | None",
        batch: PolicyBatch,
        share: BatchShare,
    ) -> "tuple[Tensor, Metrics] | None":
        """Give what is added to the loss, with the coefficient.

        Args:
            logprobs_BT: Of the policy that learns, in nats, with gradient.
            log_ratio_BT: Each token's log-ratio to the old policy, with gradient.
            entropy_BT: Exact entropies in nats, with gradient, where the part needs them.
            batch: The rollouts, with what the part needs.
            share: How this part of the batch counts.

        Returns:
            This part's share of the loss, and metrics as means over its tokens, by the names in
            `metrics`; None for nothing.

        """
        return None
