"""Preference losses that need no reference policy. Both work on log-probabilities per token."""

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from posttrain.learning.maths.pairs import pair_metrics
from posttrain.learning.maths.reduce import Metrics, detached


def simpo_loss(
    chosen_mean_logprob_B: Tensor,
    rejected_mean_logprob_B: Tensor,
    *,
    beta: float,
    target_margin: float,
    denominator: Tensor | float,
) -> tuple[Tensor, Metrics]:
    """Compute ``sum(-log sigmoid(beta (chosen - rejected) - target_margin)) / denominator``.

    Source: SimPO, arXiv 2405.14734.

    Args:
        chosen_mean_logprob_B: Mean log-probability per token of the preferred completions.
        rejected_mean_logprob_B: That of the others.
        beta: Factor from log-probability to reward.
        target_margin: By how much the preferred one should win: the paper's gamma; TRL divides the
            same number by beta and multiplies it again.
        denominator: Number of pairs of the whole batch.

    Returns:
        The loss, a scalar; and the metrics of ``pairs.pair_metrics``. Equal completions give
        ``log(1 + exp(target_margin))`` a pair.

    """
    gap_B = beta * (chosen_mean_logprob_B - rejected_mean_logprob_B)
    loss = -logsigmoid(gap_B - target_margin).sum() / denominator
    return loss, pair_metrics(beta * chosen_mean_logprob_B, beta * rejected_mean_logprob_B)


def orpo_loss(
    chosen_mean_logprob_B: Tensor,
    rejected_mean_logprob_B: Tensor,
    *,
    weight: float,
    denominator: Tensor | float,
) -> tuple[Tensor, Metrics]:
    """Compute ``sum(-chosen - weight log sigmoid(difference of log odds)) / denominator``.

    The difference is ``log odds chosen - log odds rejected``, with ``odds = p / (1 - p)`` and p the
    geometric mean of the token probabilities; the first term is plain SFT on the chosen. Source:
    arXiv 2403.07691. A completion of probability 1 has infinite odds: mean log-probabilities are
    held below -1e-7.

    Args:
        chosen_mean_logprob_B: Mean log-probability per token of the preferred completions.
        rejected_mean_logprob_B: That of the others.
        weight: Of the second term: the paper's lambda, 0.1.
        denominator: Number of pairs of the whole batch.

    Returns:
        The loss, a scalar; and the metrics ``chosen_nll``, ``log_odds_ratio`` and those of
        ``pairs.pair_metrics`` on mean log-probabilities.

    """
    log_odds_B = _log_odds(chosen_mean_logprob_B) - _log_odds(rejected_mean_logprob_B)
    loss_B = -chosen_mean_logprob_B - weight * logsigmoid(log_odds_B)
    num_pairs = max(len(log_odds_B), 1)
    metrics = {
        "chosen_nll": -chosen_mean_logprob_B.sum() / num_pairs,
        "log_odds_ratio": log_odds_B.sum() / num_pairs,
    }
    pairs = pair_metrics(chosen_mean_logprob_B, rejected_mean_logprob_B)
    return loss_B.sum() / denominator, {**detached(metrics), **pairs}


def _log_odds(logprob_B: Tensor) -> Tensor:
    logprob_B = logprob_B.clamp(max=-1e-7)
    # log(1 - p) in the form that keeps its digits: by expm1 near p = 1, by log1p near p = 0.
    near_one_B = logprob_B > -math.log(2)
    log_rest_B = torch.where(
        near_one_B,
        torch.log(-torch.expm1(logprob_B)),
        torch.log1p(-torch.exp(logprob_B)),
    )
    return logprob_B - log_rest_B
