"""The likelihood of what did better than its group, as a loss of its own."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.algorithms.batches import PolicyBatch
from posttrain.learning.algorithms.regularizers.base import BatchShare, Regularizer

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.maths.reduce import Metrics


class ImitationRegularizer(Regularizer):
    """Raise the likelihood of the tokens whose advantage is positive, whatever their ratio.

    They are averaged as the algorithm averages all of its tokens.

    `-coefficient 1[A > 0] log p`, a token.
    """

    SOURCE = (
        "VAPO, arXiv 2504.05118: positive example LM loss; THOR, arXiv 2509.13761; JingMog/THOR at"
        " eeabad0, dp_actor.py (grpo_select_alpha)"
    )

    METRICS: ClassVar[Mapping[str, str]] = {
        "imitated": "share of the tokens whose advantage is positive",
    }

    kind: Literal["imitation"] = "imitation"
    """What did well is learned as by fine-tuning, beside the surrogate."""

    def loss(
        self,
        logprobs_BT: "Tensor",
        *,
        log_ratio_BT: "Tensor",  # noqa: ARG002 - of no policy before
        entropy_BT: "Tensor | None",  # noqa: ARG002
        batch: PolicyBatch,
        share: BatchShare,
    ) -> "tuple[Tensor, Metrics] | None":
        """Add -log p of these tokens; see `Regularizer.loss`. Metric: `imitated`."""
        from posttrain.learning.maths.reduce import aggregate, detached, masked_mean

        better_BT = (batch.advantages_BT > 0).to(logprobs_BT.dtype).expand_as(logprobs_BT)
        gain = aggregate(
            better_BT * logprobs_BT,
            share.mask_BT,
            aggregation=share.aggregation,
            denominator=share.denominator,
        )
        return -self.coefficient * gain, detached(
            {"imitated": masked_mean(better_BT, share.mask_BT)}
        )

    def describe(self) -> str:
        """`imitation 0.01`."""
        return f"imitation {self.coefficient:g}"
