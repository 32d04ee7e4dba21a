"""How evenly a router spreads tokens over experts (Switch Transformers, 2101.03961, section 2.2).

With E experts, f_i the tokens of a batch that go to expert i over all N tokens, and P_i the mean
probability that the router gives it, the loss is ``E sum_i f_i P_i``: k where each token goes to k
experts and all get the same, E where all tokens go to the same and nothing else is likely. Only P
has a gradient. As f is of the whole batch, the loss is no sum over its tokens until f is known.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RoutedRows:
    """Tokens of a micro-batch as they go through a model."""

    input_ids_BT: Tensor
    learned_BT: Tensor
    """True at tokens that bear loss; what comes after the last of a row is padding."""
    position_ids_BT: Tensor | None = None
    """Of packed rows."""

    @property
    def real_BT(self) -> Tensor:
        """False at padding."""
        after_BT = self.learned_BT.flip(-1).cumsum(-1).flip(-1)
        return after_BT > 0


def expert_counts(logits_NE: Tensor, *, top_k: int) -> Tensor:
    """Count the tokens that go to each expert.

    Args:
        logits_NE: Of a router.
        top_k: Experts that a token goes to.

    Returns:
        Counts ``[E]`` as float32, without gradient.

    """
    chosen_Nk = logits_NE.detach().topk(top_k, -1).indices
    return torch.bincount(chosen_Nk.flatten(), minlength=logits_NE.shape[-1]).float()


def balance_share(logits_NE: Tensor, counts_E: Tensor, *, num_tokens: int) -> Tensor:
    """Compute what some of a batch's tokens add to its loss of one router.

    Args:
        logits_NE: Of these tokens.
        counts_E: Tokens of the whole batch that go to each expert.
        num_tokens: Of the whole batch.

    Returns:
        A scalar; over a partition of the batch they add up to its loss.

    """
    probability_E = logits_NE.float().softmax(-1).sum(0) / num_tokens
    return logits_NE.shape[-1] * (counts_E / num_tokens * probability_E).sum()
