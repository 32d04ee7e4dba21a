"""A pull towards the reference policy."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch, needed
from posttrain.learning.algorithms.regularizers.base import BatchShare, Regularizer

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.maths.reduce import Metrics


class KlRegularizer(Regularizer):
    """A pull towards the reference policy; which policy that is, the stage says.

    `coefficient k(log p, log p_ref)` a token, added to the loss or taken off the reward.
    `maths.kl` has the table of what each estimator estimates, and of whose gradient it has.
    """

    SOURCE = "Schulman 2020 for k1 to k3; gradients: arXiv 2506.09477, 2510.01555"

    METRICS: ClassVar[Mapping[str, str]] = {
        "kl": "divergence from the reference, in nats per token",
    }

    kind: Literal["kl"] = "kl"
    """A divergence from the reference, estimated from the tokens drawn."""
    anchor: Literal["reference", "before"] = "reference"
    """What it is measured from: the reference, or the policy before the step's first update."""
    place: Literal["loss", "reward"] = "loss"
    """Added to the loss, or taken off the rewards before the advantages."""
    estimator: Literal[
        "k1", "k2", "k3", "forward", "jensen_shannon", "chi_squared", "reverse_chi_squared"
    ] = "k3"
    """How the divergence at a token is estimated from the token drawn; `chi_squared` is that of the
    reference from the policy, `reverse_chi_squared` that of the policy from the reference."""
    ratio_weighted: bool = False
    """Multiply by the ratio to the old policy, which makes all but k2 exact in a loss."""
    ceiling: float | None = Field(default=None, gt=0.0)
    """Largest estimate that counts at a token; none leaves it unbounded."""

    @model_validator(mode="after")
    def _has_a_gradient(self) -> Self:
        if self.anchor == "before" and self.place == "reward":
            raise ValueError(
                "place reward is before the step's first update, where the divergence from anchor"
                " before is 0; set place to loss, or anchor to reference"
            )
        if self.place == "reward" and self.ratio_weighted:
            raise ValueError(
                "ratio_weighted is for a divergence in the loss, but place is reward;"
                " set ratio_weighted to false, or place to loss"
            )
        if self.place == "loss" and self.estimator == "k1" and not self.ratio_weighted:
            raise ValueError(
                "estimator k1 in the loss has a gradient of 0 on average;"
                " set ratio_weighted to true, place to reward, or estimator to k2"
            )
        if self.estimator == "k2" and self.ratio_weighted:
            raise ValueError(
                "estimator k2 times the ratio has the gradient of no divergence;"
                " set ratio_weighted to false, or estimator to k3"
            )
        if not self.estimator.startswith("k") and not self.ratio_weighted:
            raise ValueError(
                f"estimator {self.estimator} has the gradient of what it is called only in the loss"
                " and times the ratio; set place to loss and ratio_weighted to true"
            )
        return self

    @property
    def needs(self) -> frozenset[str]:
        """The anchor, of the generation or with every part of an update."""
        if self.anchor == "before":
            return frozenset({"old_logprobs"})
        return frozenset({"reference" if self.place == "loss" else "rewards_reference"})

    @property
    def metrics(self) -> Mapping[str, str]:
        """The divergence, where it is in the loss."""
        return self.METRICS if self.place == "loss" else {}

    def token_cost(self, rollouts: RolloutBatch) -> "Tensor | None":
        """Estimate the engine's divergence; see `Regularizer.token_cost`."""
        if self.place == "loss":
            return None
        what = "kl in the reward"
        return self._estimate(
            needed(rollouts.sampled_logprobs_BT, "sampled_logprobs_BT", what),
            needed(rollouts.reference_logprobs_BT, "reference_logprobs_BT", what),
        )

    def loss(
        self,
        logprobs_BT: "Tensor",
        *,
        log_ratio_BT: "Tensor",
        entropy_BT: "Tensor | None",
        batch: PolicyBatch,
        share: BatchShare,
    ) -> "tuple[Tensor, Metrics] | None":
        """Estimate the policy's divergence; see `Regularizer.loss`. Metric: `kl`."""
        if self.place == "reward":
            return None
        from posttrain.learning.maths.kl import held_near, kl_loss

        if self.anchor == "before":
            reference_BT = needed(batch.old_logprobs_BT, "old_logprobs_BT", "kl from before")
        else:
            reference_BT = needed(batch.reference_logprobs_BT, "reference_logprobs_BT", "kl")
        if self.ratio_weighted:
            old_BT = (logprobs_BT - log_ratio_BT).detach()
            held_BT = held_near(logprobs_BT, old_BT=old_BT, reference_BT=reference_BT)
            # The ratio moves by as much; by exactly 0 where nothing is held.
            log_ratio_BT = log_ratio_BT + (held_BT - logprobs_BT)
            logprobs_BT = held_BT
        return kl_loss(
            self._estimate(logprobs_BT, reference_BT),
            share.mask_BT,
            coefficient=self.coefficient,
            aggregation=share.aggregation,
            denominator=share.denominator,
            log_ratio_BT=log_ratio_BT if self.ratio_weighted else None,
        )

    def describe(self) -> str:
        """`k3 0.04 in loss`."""
        weighted = "ratio x " if self.ratio_weighted else ""
        anchor = "" if self.anchor == "reference" else f" from {self.anchor}"
        return f"{weighted}{self.estimator} {self.coefficient:g} in {self.place}{anchor}"

    def _estimate(self, logprobs_BT: "Tensor", reference_BT: "Tensor") -> "Tensor":
        from posttrain.learning.maths.kl import kl_estimate

        return kl_estimate(
            logprobs_BT, reference_BT, estimator=self.estimator, ceiling=self.ceiling
        )
