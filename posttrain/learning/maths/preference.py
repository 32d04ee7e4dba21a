"""DPO and its relatives: losses on pairs, by each completion's log-ratio to the reference.

A log-ratio is ``logprob under the policy - logprob under the reference``, summed over the tokens of
the completion (``sequence_logprobs``); divided by its length where a variant works per token.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from posttrain.learning.maths.pairs import pair_metrics
from posttrain.learning.maths.reduce import Metrics, detached

PairLoss = Literal["sigmoid", "robust", "ipo", "hinge"]


def _sigmoid(margin_B: Tensor, beta: float, smoothing: float) -> Tensor:
    scaled_B = beta * margin_B
    return -(1 - smoothing) * logsigmoid(scaled_B) - smoothing * logsigmoid(-scaled_B)


def _robust(margin_B: Tensor, beta: float, smoothing: float) -> Tensor:
    if not 0 <= smoothing < 0.5:
        raise ValueError(f"robust DPO needs a flip rate in [0, 0.5), not {smoothing}")
    scaled_B = beta * margin_B
    clean_B = -(1 - smoothing) * logsigmoid(scaled_B) + smoothing * logsigmoid(-scaled_B)
    return clean_B / (1 - 2 * smoothing)


PAIR_LOSSES: dict[PairLoss, Callable[[Tensor, float, float], Tensor]] = {
    "sigmoid": _sigmoid,
    "robust": _robust,
    "ipo": lambda margin_B, beta, smoothing: (margin_B - 1 / (2 * beta)).square(),
    "hinge": lambda margin_B, beta, smoothing: torch.relu(1 - beta * margin_B),
}


def preference_loss(
    chosen_log_ratio_B: Tensor,
    rejected_log_ratio_B: Tensor,
    *,
    loss: PairLoss,
    beta: float,
    denominator: Tensor | float,
    label_smoothing: float = 0.0,
) -> tuple[Tensor, Metrics]:
    """Compute ``sum(loss of the margin m) / denominator``, m = chosen - rejected log-ratio.

    ========= ============================================== =================================
    loss      per pair, s = label_smoothing                  source
    ========= ============================================== =================================
    sigmoid   -(1-s) log sig(beta m) - s log sig(-beta m)    DPO, arXiv 2305.18290; s > 0: cDPO,
                                                             ericmitchell.ai/cdpo.pdf
    robust    (-(1-s) log sig(beta m) + s log sig(-beta m))  arXiv 2403.00409; s is the rate of
              / (1 - 2s)                                     flipped labels, below 1/2
    ipo       (m - 1/(2 beta))^2                             arXiv 2310.12036
    hinge     max(0, 1 - beta m)                             SLiC, arXiv 2305.10425; against a
                                                             reference: RSO, arXiv 2309.06657
    ========= ============================================== =================================

    IPO is used in two ways under one name: on log-ratios summed over tokens (OpenRLHF, AReaL), and
    on log-ratios **divided by the length** (TRL, as its authors ran it): hand in the one that you
    mean.

    Args:
        chosen_log_ratio_B: Log-ratio of policy to reference of the preferred completions, in nats.
        rejected_log_ratio_B: That of the others.
        loss: Which row of the table.
        beta: How sharply a margin counts; larger stays nearer to the reference.
        denominator: Number of pairs of the whole batch.
        label_smoothing: The table's s; no effect on ``ipo`` and ``hinge``.

    Returns:
        The loss, a scalar; and the metrics of ``pairs.pair_metrics`` on the implicit rewards
        ``beta x log-ratio``. A policy equal to its reference gives log 2 a pair (sigmoid, robust),
        1/(4 beta^2) (ipo), 1 (hinge).

    """
    margin_B = chosen_log_ratio_B - rejected_log_ratio_B
    loss_B = PAIR_LOSSES[loss](margin_B, beta, label_smoothing)
    return loss_B.sum() / denominator, pair_metrics(
        beta * chosen_log_ratio_B, beta * rejected_log_ratio_B
    )


def chosen_likelihood_loss(
    chosen_logprobs_B: Tensor, *, coefficient: float, denominator: Tensor | float
) -> tuple[Tensor, Metrics]:
    """Compute ``-coefficient x sum(logprob of the chosen) / denominator``, for a pair loss.

    RPO: keeps the likelihood of the chosen from falling with that of the rejected. Sources: arXiv
    2405.16436 for summed logprobs, 2404.19733 for logprobs divided by the length.

    Args:
        chosen_logprobs_B: Log-probability of each preferred completion, summed or per token.
        coefficient: Factor on the term.
        denominator: Number of pairs of the whole batch.

    Returns:
        A scalar to add to the pair loss; and the metric ``chosen_nll``, the mean in nats.

    """
    nll = -chosen_logprobs_B.sum()
    metrics = {"chosen_nll": nll / max(len(chosen_logprobs_B), 1)}
    return coefficient * nll / denominator, detached(metrics)


def optimism_loss(
    sampled_logprobs_B: Tensor, *, coefficient: float, denominator: Tensor | float
) -> tuple[Tensor, Metrics]:
    """Compute ``coefficient x sum(logprob of other samples) / denominator``, for online DPO.

    XPO: completions of the *reference* (or of an earlier sampler) are made less likely, so that the
    policy leaves its initial support. Source: arXiv 2405.21046, algorithm 1.

    Args:
        sampled_logprobs_B: Log-probability under the policy of completions of the reference.
        coefficient: Factor on the term, the paper's alpha.
        denominator: Number of pairs of the whole batch.

    Returns:
        A scalar to add to the pair loss; and the metric ``sampled_logprob``, the mean in nats.

    """
    total = sampled_logprobs_B.sum()
    metrics = {"sampled_logprob": total / max(len(sampled_logprobs_B), 1)}
    return coefficient * total / denominator, detached(metrics)
