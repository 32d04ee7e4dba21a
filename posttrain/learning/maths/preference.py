"""DPO and its relatives: losses on pairs, by each completion's log-ratio to the reference.

A log-ratio is ``logprob under the policy - logprob under the reference``, summed over the tokens of
the completion (``sequence_logprobs``); divided by its length where a variant works per token. KTO
takes single completions, marked good or bad; SimPO and ORPO need no reference.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from posttrain.learning.maths.pairs import pair_metrics, weighted_sum
from posttrain.learning.maths.reduce import Metrics, detached, masked_mean, masked_sum


def sequence_logprobs(logprobs_BT: Tensor, mask_BT: Tensor, *, per_token: bool = False) -> Tensor:
    """Sum log-probabilities over the valid tokens of each sequence, or take their mean.

    The sum is the log-probability of the completion (DPO, KTO); the mean is that per token (SimPO,
    ORPO, length-normalized IPO).

    Args:
        logprobs_BT: Log-probability of each token, in nats.
        mask_BT: The valid tokens.
        per_token: True for the mean.

    Returns:
        One number per sequence, ``[B]``; 0 of an empty one.

    """
    reduce = masked_mean if per_token else masked_sum
    return reduce(logprobs_BT, mask_BT, -1)


def desensitized_logprobs(
    logprobs_BT: Tensor, mask_BT: Tensor, *, shared_length_B: Tensor, alpha: float
) -> Tensor:
    """Sum log-probabilities, with tokens beyond the length that a pair shares at a lower weight.

    Use it for policy and reference, then ``preference_loss``. Source: LD-DPO, arXiv 2409.06411.

    Args:
        logprobs_BT: Log-probability of each token, in nats.
        mask_BT: The valid tokens.
        shared_length_B: The smaller number of valid tokens of the pair's two completions, the same
            for both.
        alpha: Weight of the tokens beyond it: 1 is the plain sum, 0 cuts the longer one off.

    Returns:
        One number per sequence, ``[B]``.

    """
    rank_BT = mask_BT.bool().cumsum(-1)
    weights_BT = torch.where(rank_BT <= shared_length_B.unsqueeze(-1), 1.0, alpha)
    return masked_sum(logprobs_BT * weights_BT, mask_BT, -1)


def discounted_logprobs(logprobs_BT: Tensor, mask_BT: Tensor, *, gamma: float) -> Tensor:
    """Sum log-probabilities, each token at a discount by how many valid ones are before it.

    Source: CPL, arXiv 2310.13639, equation 5, whose steps are tokens here.

    Args:
        logprobs_BT: Log-probability of each token, in nats.
        mask_BT: The valid tokens: the segment, which begins at the first of them.
        gamma: Weight of each against the one before it; 1 is the plain sum.

    Returns:
        One number per sequence, ``[B]``; 0 of an empty one.

    """
    before_BT = (mask_BT.bool().cumsum(-1) - 1).clamp(min=0)
    return masked_sum(logprobs_BT * gamma**before_BT, mask_BT, -1)


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
    known: tuple[Tensor, Tensor] | None = None,
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
        denominator: Number of pairs of the whole batch, or the sum of their weights.
        label_smoothing: The table's s; no effect on ``ipo`` and ``hinge``.
        known: How much each pair counts, and the probability q that its preferred one is the
            better: the loss is then q times that of the margin and 1 - q times that of the pair
            the other way round, which is IPO's own expectation over labels too. None where each
            counts 1 and is sure.

    Returns:
        The loss, a scalar; and the metrics of ``pairs.pair_metrics`` on the implicit rewards
        ``beta x log-ratio``. A policy equal to its reference gives log 2 a pair (sigmoid, robust),
        1/(4 beta^2) (ipo), 1 (hinge).

    """
    margin_B = chosen_log_ratio_B - rejected_log_ratio_B
    loss_B = PAIR_LOSSES[loss](margin_B, beta, label_smoothing)
    if known is not None:
        weight_B, sure_B = known
        other_B = PAIR_LOSSES[loss](-margin_B, beta, label_smoothing)
        loss_B = weight_B * (sure_B * loss_B + (1 - sure_B) * other_B)
    return loss_B.sum() / denominator, pair_metrics(
        beta * chosen_log_ratio_B, beta * rejected_log_ratio_B
    )


def chosen_likelihood_loss(
    chosen_logprobs_B: Tensor,
    *,
    coefficient: float,
    denominator: Tensor | float,
    weight_B: Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """Compute ``-coefficient x sum(logprob of the chosen) / denominator``, for a pair loss.

    RPO: keeps the likelihood of the chosen from falling with that of the rejected. Sources: arXiv
    2405.16436 for summed logprobs, 2404.19733 for logprobs divided by the length.

    Args:
        chosen_logprobs_B: Log-probability of each preferred completion, summed or per token.
        coefficient: Factor on the term.
        denominator: Number of pairs of the whole batch, or the sum of their weights.
        weight_B: How much each pair counts; None where all count 1.

    Returns:
        A scalar to add to the pair loss; and the metric ``chosen_nll``, the mean in nats.

    """
    nll = -chosen_logprobs_B.sum()
    metrics = {"chosen_nll": nll / max(len(chosen_logprobs_B), 1)}
    total = nll if weight_B is None else weighted_sum(-chosen_logprobs_B, weight_B)
    return coefficient * total / denominator, detached(metrics)


def optimism_loss(
    sampled_logprobs_B: Tensor,
    *,
    coefficient: float,
    denominator: Tensor | float,
    weight_B: Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """Compute ``coefficient x sum(logprob of other samples) / denominator``, for online DPO.

    XPO: completions of the *reference* (or of an earlier policy) are made less likely, so that the
    policy leaves its initial support. Source: arXiv 2405.21046, algorithm 1.

    Args:
        sampled_logprobs_B: Log-probability under the policy of completions of the reference.
        coefficient: Factor on the term, the paper's alpha.
        denominator: Number of pairs of the whole batch, or the sum of their weights.
        weight_B: How much each pair counts; None where all count 1.

    Returns:
        A scalar to add to the pair loss; and the metric ``sampled_logprob``, the mean in nats.

    """
    total = sampled_logprobs_B.sum()
    metrics = {"sampled_logprob": total / max(len(sampled_logprobs_B), 1)}
    weighed = weighted_sum(sampled_logprobs_B, weight_B)
    return coefficient * weighed / denominator, detached(metrics)


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
    desirable_weight: float | Tensor = 1.0,
    undesirable_weight: float | Tensor = 1.0,
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
        desirable_weight: Weight w of a desirable completion; or of each, ``[B]``.
        undesirable_weight: Weight w of any other; or of each, ``[B]``.

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


def simpo_loss(
    chosen_mean_logprob_B: Tensor,
    rejected_mean_logprob_B: Tensor,
    *,
    beta: float,
    target_margin: float,
    denominator: Tensor | float,
    weight_B: Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """Compute ``sum(-log sigmoid(beta (chosen - rejected) - target_margin)) / denominator``.

    Source: SimPO, arXiv 2405.14734.

    Args:
        chosen_mean_logprob_B: Mean log-probability per token of the preferred completions.
        rejected_mean_logprob_B: That of the others.
        beta: Factor from log-probability to reward.
        target_margin: By how much the preferred one should win: the paper's gamma; TRL divides the
            same number by beta and multiplies it again.
        denominator: Number of pairs of the whole batch, or the sum of their weights.
        weight_B: How much each pair counts; None where all count 1.

    Returns:
        The loss, a scalar; and the metrics of ``pairs.pair_metrics``. Equal completions give
        ``log(1 + exp(target_margin))`` a pair.

    """
    gap_B = beta * (chosen_mean_logprob_B - rejected_mean_logprob_B)
    total = weighted_sum(-logsigmoid(gap_B - target_margin), weight_B)
    return total / denominator, pair_metrics(
        beta * chosen_mean_logprob_B, beta * rejected_mean_logprob_B
    )


def orpo_loss(
    chosen_mean_logprob_B: Tensor,
    rejected_mean_logprob_B: Tensor,
    *,
    weight: float,
    denominator: Tensor | float,
    weight_B: Tensor | None = None,
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
        denominator: Number of pairs of the whole batch, or the sum of their weights.
        weight_B: How much each pair counts; None where all count 1.

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
    return weighted_sum(loss_B, weight_B) / denominator, {**detached(metrics), **pairs}


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
