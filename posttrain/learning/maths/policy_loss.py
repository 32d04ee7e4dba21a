"""The policy loss: a surrogate's token losses, weighted and aggregated."""

from torch import Tensor

from posttrain.learning.maths.reduce import Aggregation, Metrics, aggregate, detached, masked_mean
from posttrain.learning.maths.surrogates import TokenLoss


def policy_loss(
    surrogate: TokenLoss,
    mask_BT: Tensor,
    *,
    aggregation: Aggregation,
    denominator: Tensor | float,
    weights_BT: Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """``sum(aggregation weight x weight x token loss) / denominator``, and its metrics.

    Inputs:
        surrogate: Of ``surrogates``: ``clipped(log_ratio_BT, advantages_BT, low=0.2, high=0.28)``.
        mask_BT: The valid tokens.
        aggregation: How tokens and sequences are averaged.
        denominator: Of the whole batch, from ``reduce.loss_denominator`` summed over its parts.
        weights_BT: Factor on the loss of each token, such as a correction for the sampler
            (``correction``) or the weight of a source. No gradient flows through it.

    Metrics, as means over the valid tokens of this part: ``clip_fraction``, and with weights
    ``weight_mean`` and ``weight_zero_fraction``.

    An empty mask gives loss 0 with gradient 0.
    """
    loss_BT = surrogate.loss_BT
    metrics = {"clip_fraction": masked_mean(surrogate.clipped_BT, mask_BT)}
    if weights_BT is not None:
        weights_BT = weights_BT.detach()
        loss_BT = loss_BT * weights_BT
        metrics["weight_mean"] = masked_mean(weights_BT.expand_as(mask_BT), mask_BT)
        metrics["weight_zero_fraction"] = masked_mean((weights_BT == 0).expand_as(mask_BT), mask_BT)
    loss = aggregate(loss_BT, mask_BT, aggregation=aggregation, denominator=denominator)
    return loss, detached(metrics)


def entropy_bonus(
    entropy_BT: Tensor,
    mask_BT: Tensor,
    *,
    coefficient: float,
    aggregation: Aggregation,
    denominator: Tensor | float,
) -> tuple[Tensor, Metrics]:
    """``-coefficient x aggregated entropy``, to add to the policy loss. Metric: ``entropy``, nats.

    ``entropy_BT`` is that of ``entropy.entropy_from_logits``, with its gradient.
    """
    bonus = aggregate(entropy_BT, mask_BT, aggregation=aggregation, denominator=denominator)
    return -coefficient * bonus, detached({"entropy": masked_mean(entropy_BT, mask_BT)})
