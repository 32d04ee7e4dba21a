"""A teacher's distributions as what is learned: knowledge distillation."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.training.row_losses.base import LearnedTokens, RowLoss

if TYPE_CHECKING:
    from torch import Tensor


class SoftTargetsLoss(RowLoss):
    """The divergence of the policy's next-token distribution from a teacher's, at each token.

    `T^2 D(teacher, policy) - hard_weight log p(token)`, both softmaxes at the temperature T that
    the teacher was asked at. With a teacher P and a policy Q:

    - `forward_kl`: KL(P || Q), covers what the teacher does; word-level distillation.
    - `reverse_kl`: KL(Q || P), keeps to what the teacher does.
    - `jensen_shannon`: `w KL(P || M) + (1 - w) KL(Q || M)` with `M = w P + (1 - w) Q`.
    - `skew_forward_kl`: KL(P || w P + (1 - w) Q).
    - `skew_reverse_kl`: KL(Q || (1 - w) P + w Q).

    Of the teacher its likeliest tokens are known. Under `bucket` all others count as one further
    outcome, on both sides: the divergence is never above that of the whole vocabulary, is equal to
    it where the table holds all tokens, and a policy is held to the teacher's mass beyond its
    likeliest tokens. Under `renormalized` both distributions are those given one of these tokens:
    what the policy does beyond them costs nothing, so that it may drift there.

    Learned on the policy's own samples, such as a probe's, this is on-policy but for the steps
    since they were drawn.
    """

    SOURCE = (
        "Hinton et al. 2015, arXiv 1503.02531, section 2 (temperature, T^2, hard targets);"
        " word-level for text: Kim and Rush 2016, arXiv 1606.07947; reverse: MiniLLM, arXiv"
        " 2306.08543; generalized Jensen-Shannon: GKD, arXiv 2306.13649, equation 1; skew:"
        " DistiLLM, arXiv 2402.03898; one outcome for all others: ghost token of Sparse Logit"
        " Sampling, arXiv 2503.16870"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"targets"})

    kind: Literal["soft_targets"] = "soft_targets"
    divergence: Literal[
        "forward_kl", "reverse_kl", "jensen_shannon", "skew_forward_kl", "skew_reverse_kl"
    ] = "forward_kl"
    """Which divergence."""
    weight: float = Field(default=0.5, gt=0.0, lt=1.0)
    """The `w` of mixtures: GKD's beta, DistiLLM's alpha (0.1 there)."""
    others: Literal["bucket", "renormalized"] = "bucket"
    """What becomes of the tokens that are not among the teacher's likeliest."""
    hard_weight: float = Field(default=0.0, ge=0.0)
    """Weight of `-log p` of the row's own token, at temperature 1."""

    def without_effect(self) -> frozenset[str]:
        """`weight` of a divergence without a mixture."""
        return frozenset({"weight"} if self.divergence in ("forward_kl", "reverse_kl") else ())

    def losses(self, tokens: LearnedTokens) -> "Tensor":
        """Measure the divergence at every token; see `RowLoss.losses`."""
        from posttrain.learning.maths.divergence import distilled

        assert tokens.targets is not None
        assert tokens.support is not None
        outcomes = _OUTCOMES[self.others]
        teacher_NO = outcomes(tokens.targets.logprobs_NK, tokens.targets.rest_N)
        policy_NO = outcomes(tokens.support.support_NK, tokens.support.rest_N)
        # Where the policy's K tokens are all of them, there is no further outcome.
        count = min(teacher_NO.shape[1], policy_NO.shape[1])
        soft_N = distilled(
            teacher_NO[:, :count], policy_NO[:, :count], kind=self.divergence, weight=self.weight
        )
        soft_N = tokens.targets.temperature**2 * soft_N
        if self.hard_weight == 0.0:
            return soft_N
        return soft_N - self.hard_weight * tokens.logprobs_N


_LEAST_REST = -80.0
"""The log of the others' mass is held here: below it, that is 0 in float32."""


def _with_rest(logprobs_NK: "Tensor", rest_N: "Tensor") -> "Tensor":
    import torch

    if bool((rest_N == -torch.inf).all()):
        return logprobs_NK
    return torch.cat([logprobs_NK, rest_N.clamp(min=_LEAST_REST)[:, None]], dim=1)


def _renormalized(logprobs_NK: "Tensor", rest_N: "Tensor") -> "Tensor":  # noqa: ARG001 - as above
    return logprobs_NK.log_softmax(-1)


_OUTCOMES: Mapping[str, "Callable[[Tensor, Tensor], Tensor]"] = {
    "bucket": _with_rest,
    "renormalized": _renormalized,
}
