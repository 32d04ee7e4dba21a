"""Exact divergences of two next-token distributions over the whole vocabulary, for distillation.

``kl`` has the estimates for when only the sampled tokens are at hand.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Divergence = Literal["reverse_kl", "forward_kl", "jensen_shannon", "chi_squared"]
Distilled = Literal[
    "forward_kl", "reverse_kl", "jensen_shannon", "skew_forward_kl", "skew_reverse_kl"
]
"""What a policy is distilled by; see `distilled`."""


def _kl(first_NV: Tensor, second_NV: Tensor) -> Tensor:
    # A token that the first forbids contributes 0, also where both are -infinity.
    gap_NV = torch.where(first_NV == -torch.inf, 0.0, first_NV - second_NV)
    return (first_NV.exp() * gap_NV).sum(-1)


def _jensen_shannon(policy_NV: Tensor, reference_NV: Tensor) -> Tensor:
    middle_NV = torch.logaddexp(policy_NV, reference_NV) - math.log(2)
    return (_kl(policy_NV, middle_NV) + _kl(reference_NV, middle_NV)) / 2


def _chi_squared(policy_NV: Tensor, reference_NV: Tensor) -> Tensor:
    # (ref - p)^2 / p, written so that equal distributions give exactly 0.
    terms_NV = policy_NV.exp() * torch.expm1(reference_NV - policy_NV).square()
    # A token that the policy forbids: nothing where the reference does too, else infinity.
    without_NV = torch.where(reference_NV == -torch.inf, 0.0, torch.inf)
    return torch.where(policy_NV == -torch.inf, without_NV, terms_NV).sum(-1)


DIVERGENCES: dict[Divergence, Callable[[Tensor, Tensor], Tensor]] = {
    "reverse_kl": _kl,
    "forward_kl": lambda policy_NV, reference_NV: _kl(reference_NV, policy_NV),
    "jensen_shannon": _jensen_shannon,
    "chi_squared": _chi_squared,
}


def divergence(
    policy_logits_NV: Tensor, reference_logits_NV: Tensor, *, kind: Divergence
) -> Tensor:
    """Measure how far the policy's next-token distribution is from the reference's, in nats.

    ``reverse_kl`` KL(policy || reference), ``forward_kl`` KL(reference || policy),
    ``jensen_shannon`` the mean KL of both to their middle, ``chi_squared`` chi^2(reference ||
    policy). Source: GKD, arXiv 2306.13649, for the use of the first three.

    Args:
        policy_logits_NV: Logits of the policy, ``[..., V]``.
        reference_logits_NV: Logits of the reference, or of a teacher, of the same shape.
        kind: Which divergence.

    Returns:
        One number per row, ``[...]``. Shifting all logits of a row changes nothing; equal
        distributions give exactly 0.

    """
    policy_NV = policy_logits_NV.log_softmax(-1)
    reference_NV = reference_logits_NV.log_softmax(-1)
    return DIVERGENCES[kind](policy_NV, reference_NV)


def _mixture(one_NV: Tensor, other_NV: Tensor, weight: float) -> Tensor:
    """Log of `weight` times the one and the remainder times the other."""
    return torch.logaddexp(one_NV + math.log(weight), other_NV + math.log1p(-weight))


def _weighted_jensen_shannon(teacher_NV: Tensor, policy_NV: Tensor, weight: float) -> Tensor:
    middle_NV = _mixture(teacher_NV, policy_NV, weight)
    return weight * _kl(teacher_NV, middle_NV) + (1 - weight) * _kl(policy_NV, middle_NV)


_DISTILLED: dict[Distilled, Callable[[Tensor, Tensor, float], Tensor]] = {
    "forward_kl": lambda teacher_NV, policy_NV, _: _kl(teacher_NV, policy_NV),
    "reverse_kl": lambda teacher_NV, policy_NV, _: _kl(policy_NV, teacher_NV),
    "jensen_shannon": _weighted_jensen_shannon,
    "skew_forward_kl": lambda teacher_NV, policy_NV, weight: _kl(
        teacher_NV, _mixture(teacher_NV, policy_NV, weight)
    ),
    "skew_reverse_kl": lambda teacher_NV, policy_NV, weight: _kl(
        policy_NV, _mixture(policy_NV, teacher_NV, weight)
    ),
}


def distilled(
    teacher_NV: Tensor, policy_NV: Tensor, *, kind: Distilled, weight: float = 0.5
) -> Tensor:
    """Measure how far a policy is from its teacher, in nats.

    With a teacher P and a policy Q: ``forward_kl`` KL(P || Q), ``reverse_kl`` KL(Q || P),
    ``jensen_shannon`` w KL(P || M) + (1 - w) KL(Q || M) with M = w P + (1 - w) Q,
    ``skew_forward_kl`` KL(P || w P + (1 - w) Q), ``skew_reverse_kl`` KL(Q || (1 - w) P + w Q).
    Source: Jensen-Shannon of weight w: GKD, arXiv 2306.13649, equation 1; skew: DistiLLM, arXiv
    2402.03898.

    Args:
        teacher_NV: Log-probabilities of the teacher's outcomes, in nats.
        policy_NV: Those of the policy, of the same outcomes.
        kind: Which divergence.
        weight: The w of mixtures, between 0 and 1.

    Returns:
        One number per row, ``[N]``; equal distributions give 0.

    """
    return _DISTILLED[kind](teacher_NV, policy_NV, weight)
