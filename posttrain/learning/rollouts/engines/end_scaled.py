"""Samples from a policy whose end comes sooner or later than by itself."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from posttrain.learning.rollouts.engines.mixture import MixtureRolloutEngine
from posttrain.learning.rollouts.engines.stop import end_tokens

if TYPE_CHECKING:
    from posttrain.learning.models.load import Policy


class EndScaledEngine(MixtureRolloutEngine):
    """Draws from ``p(end)^T`` beside ``p(any other token)``, normalized at each token.

    It reads the whole text anew for each token, as the mixture does that it is of one policy alone.
    """

    def __init__(self, policy: "Policy", *, temperature: float, batch_size: int = 512) -> None:
        super().__init__(policy, policy.model, share=0.0, batch_size=batch_size)
        self.temperature = temperature
        self._ends = sorted(end_tokens(policy.model, policy.tokenizer))

    def _logits(self, rows: Sequence[Sequence[int]]) -> Tensor:
        lengths = torch.tensor([len(row) for row in rows])
        width = int(lengths.max())
        device = self.policy.model.device
        ids_BT = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)
        logits_BTV = self.policy.model(input_ids=ids_BT).logits
        every_B = torch.arange(len(rows), device=device)
        last_BV: Tensor = logits_BTV[every_B, lengths.to(device) - 1].float().log_softmax(-1)
        return scaled_ends(last_BV, self._ends, self.temperature)


def scaled_ends(logprobs_BV: Tensor, ends: Sequence[int], temperature: float) -> Tensor:
    """Multiply the log-probabilities of the tokens that end an answer.

    Args:
        logprobs_BV: Log-probabilities ``[B, V]``.
        ends: Ids of the tokens that end.
        temperature: Factor; below 1 an end is likelier, as no logarithm is above 0.

    Returns:
        Logits ``[B, V]``, not normalized.

    """
    scaled_BV = logprobs_BV.clone()
    scaled_BV[:, list(ends)] *= temperature
    return scaled_BV
