"""What all surrogates share: what they are given, and the level of the ratio."""

from typing import TYPE_CHECKING, ClassVar

from posttrain.learning.algorithms.batches import PolicyBatch, TokenLoss
from posttrain.learning.algorithms.part import AlgorithmFacts, AlgorithmPart

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.maths.ratios import RatioLevel


class Surrogate(AlgorithmPart):
    """How the ratio to the old policy enters the loss of a token."""

    HAS_RATIO: ClassVar[bool] = True
    """False where the loss is right for rollouts of the current policy only."""
    PLAIN_AT_ONE: ClassVar[bool] = True
    """True where the gradient is that of REINFORCE while the ratio is 1."""
    BOUNDS: ClassVar[bool] = True
    """False where the ratio weighs and nothing holds it, so that none is missed while it is 1."""

    def token_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> TokenLoss:
        """Give the loss of each token, before weights and aggregation.

        Args:
            logprobs_BT: Of the policy that learns, in nats, with gradient.
            log_ratio_BT: Each token's log-ratio to the old policy, with gradient; 0 where masked.
            batch: The rollouts, with what the part needs; advantages with all bonuses in them.

        Returns:
            The loss of each token `[B, T]`, and where a clip took hold.

        """
        raise NotImplementedError


class SequenceSurrogate(Surrogate):
    """One loss for each sequence, whose tokens all bear it; derive and define `sequence_loss`."""

    LABELS: ClassVar[bool] = False
    """True where the sign of the advantage says whether a rollout is right."""

    def sequence_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> "Tensor":
        """Give the loss of each sequence.

        Args:
            logprobs_BT: Of the policy that learns, in nats, with gradient.
            log_ratio_BT: Each token's log-ratio to the old policy, with gradient; 0 where masked.
            batch: The rollouts, with what the part needs; advantages with all bonuses in them.

        Returns:
            ``[B]``, with gradient.

        """
        raise NotImplementedError

    def token_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> TokenLoss:
        """Let every token bear its sequence's loss; see `Surrogate.token_loss`."""
        loss_B = self.sequence_loss(logprobs_BT, log_ratio_BT, batch)
        return nothing_clipped(loss_B.unsqueeze(-1).expand_as(log_ratio_BT))

    def refusal(self, algorithm: AlgorithmFacts) -> str | None:
        """Sequences have one advantage each and count alike; a label is the reward's own sign."""
        if algorithm.aggregation != "sequence_mean_token_mean":
            return (
                f"surrogate {self.kind} has one loss per sequence;"
                " set aggregation.kind to sequence_mean_token_mean"
            )
        if algorithm.varies_within_rollouts:
            return (
                f"surrogate {self.kind} needs one advantage per sequence; take advantage group, and"
                " an entropy or kl in the loss, or another surrogate"
            )
        return refuse_baseline(self.kind, algorithm) if self.LABELS else None


def refuse_baseline(kind: str, algorithm: AlgorithmFacts) -> str | None:
    """Say that a surrogate reads right or wrong off the reward, where advantages are not rewards.

    Args:
        kind: Of the surrogate.
        algorithm: That it stands in.

    Returns:
        A sentence with the remedy; None where an advantage has the sign of the reward.

    """
    if algorithm.rewards_alone:
        return None
    return (
        f"surrogate {kind} takes a rollout for right where its advantage is above 0, so that must"
        " be the reward itself; set advantage.kind to group, and advantage.baseline, scale and"
        " whiten to none"
    )


def mean_of_others(values_B: "Tensor", group_B: "Tensor") -> "Tensor":
    """Average each group's values without the row's own, with gradient.

    Args:
        values_B: One number per row.
        group_B: Equal ids are one group.

    Returns:
        ``[B]``; 0 in a group of one.

    """
    from posttrain.learning.maths.segments import dense_ids, segment_size, segment_sum

    index_B, num_groups = dense_ids(group_B)
    others_B = (segment_size(index_B, num_groups)[index_B] - 1).clamp(min=1)
    return (segment_sum(values_B, index_B, num_groups)[index_B] - values_B) / others_B


def at_level(log_ratio_BT: "Tensor", mask_BT: "Tensor", level: "RatioLevel") -> "Tensor":
    """Spread the tokens' log-ratios to a level.

    Args:
        log_ratio_BT: Each token's log-ratio; 0 where masked.
        mask_BT: The drawn tokens.
        level: Whose ratio: see `maths.ratios.log_ratio`.

    Returns:
        Log-ratios `[B, T]`; the same tensor where the level is that of tokens.

    """
    if level == "token":
        return log_ratio_BT
    from posttrain.learning.maths.ratios import log_ratio

    zero = log_ratio_BT.new_zeros(())
    return log_ratio(log_ratio_BT, zero, mask_BT=mask_BT, level=level)


def nothing_clipped(loss_BT: "Tensor") -> TokenLoss:
    """Wrap a loss that has no clip."""
    import torch

    return TokenLoss(loss_BT, torch.zeros_like(loss_BT, dtype=torch.bool))
