"""The loss of a critic."""

import torch
from torch import Tensor

from posttrain.learning.maths.reduce import Aggregation, Metrics, aggregate, detached, masked_mean


def value_loss(
    values_BT: Tensor,
    returns_BT: Tensor,
    *,
    old_values_BT: Tensor,
    mask_BT: Tensor,
    clip: float | None,
    aggregation: Aggregation,
    denominator: Tensor | float,
) -> tuple[Tensor, Metrics]:
    """Compute ``1/2 max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2)``, aggregated.

    Source: OpenAI baselines' PPO. The factor 1/2 is that of verl, OpenRLHF, AReaL and NeMo-RL;
    slime has none. The maximum makes it pessimistic: a value that moved too far but *nearer* to its
    return keeps its larger, clipped loss, with gradient 0.

    Args:
        values_BT: The critic's values, with gradient.
        returns_BT: Targets, from ``gae.generalized_advantages``.
        old_values_BT: Values when the rollouts were made.
        mask_BT: The valid tokens.
        clip: How far a value may move before its gradient stops; None for the plain squared error.
        aggregation: How tokens and sequences are averaged.
        denominator: Of the whole batch.

    Returns:
        The loss, a scalar, 0 of an empty mask; and metrics, means over the valid tokens:
        ``value_clip_fraction``, ``value_mean``, ``value_squared_error`` (without clip and 1/2).

    """
    plain_BT = (values_BT - returns_BT).square()
    bounded_BT = plain_BT
    if clip is not None:
        near_BT = torch.minimum(
            torch.maximum(values_BT, old_values_BT - clip), old_values_BT + clip
        )
        bounded_BT = (near_BT - returns_BT).square()
    loss = aggregate(
        torch.maximum(plain_BT, bounded_BT) / 2,
        mask_BT,
        aggregation=aggregation,
        denominator=denominator,
    )
    metrics = {
        "value_clip_fraction": masked_mean(bounded_BT > plain_BT, mask_BT),
        "value_mean": masked_mean(values_BT, mask_BT),
        "value_squared_error": masked_mean(plain_BT, mask_BT),
    }
    return loss, detached(metrics)
