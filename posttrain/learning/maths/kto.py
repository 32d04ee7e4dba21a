"""KTO: a preference loss on single completions that are marked good or bad, without pairs."""

import torch
from torch import Tensor

from posttrain.learning.maths.reduce import Metrics, detached, masked_mean


def kto_reference_point(mismatched_log_ratio_B: Tensor) -> Tensor:
    """Estimate KL(policy || reference), from which KTO counts gains and losses.

    ``max(0, mean log-ratio)`` over prompts joined to *other* prompts' completions. Needs the whole
    batch: take it once and hand it to every micro-batch.

    Args:
        mismatched_log_ratio_B: Log-ratio of policy to reference, summed over the tokens of each
            mismatched completion, in nats.

    Returns:
        A scalar without gradient; 0 of no completion.

    """
    mean = mismatched_log_ratio_B.detach().sum() / max(len(mismatched_log_ratio_B), 1)
    return mean.clamp(min=0)


def kto_loss(
    log_ratio_B: Tensor,
    desirable_B: Tensor,
    *,
    reference_point: Tensor | float,
    beta: float,
    denominator: Tensor | float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> tuple[Tensor, Metrics]:
    """Compute ``sum(w (1 - sigmoid(+-beta (log_ratio - reference_point)))) / denominator``.

    Plus for desirable completions, minus for the others. Source: arXiv 2402.01306, equation 7. At
    log-ratio = reference point every completion costs half its weight. Choose the weights so that
    weight x count of the two kinds stand between 1:1 and 4:3.

    Args:
        log_ratio_B: Log-ratio of policy to reference of each completion, summed over its tokens.
        desirable_B: True for the completions that are marked good.
        reference_point: Of ``kto_reference_point``, over the whole batch.
        beta: How sharply a log-ratio counts; larger stays nearer to the reference.
        denominator: Number of completions of the whole batch.
        desirable_weight: Weight w of a desirable completion.
        undesirable_weight: Weight w of any other.

    Returns:
        The loss, a scalar; and metrics, means over these completions of beta x log-ratio:
        ``desirable_reward`` and ``undesirable_reward``, 0 where there is none of the kind.

    """
    desirable_B = desirable_B.bool()
    sign_B = torch.where(desirable_B, 1.0, -1.0)
    weight_B = torch.where(desirable_B, desirable_weight, undesirable_weight)
    gain_B = torch.sigmoid(sign_B * beta * (log_ratio_B - reference_point))
    metrics = {
        "desirable_reward": masked_mean(beta * log_ratio_B, desirable_B),
        "undesirable_reward": masked_mean(beta * log_ratio_B, ~desirable_B),
    }
    return (weight_B * (1 - gain_B)).sum() / denominator, detached(metrics)
