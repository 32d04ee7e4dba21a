"""Samples from a policy that may not draw every token."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.engines.mixture import MixtureRolloutEngine
from posttrain.learning.rollouts.engines.rng import RowKeys

if TYPE_CHECKING:
    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import AllowedAt


class MaskedRolloutEngine(MixtureRolloutEngine):
    """Draws from the policy renormalized over the tokens that a mask allows.

    Log-probabilities are those of the renormalized policy. It reads the whole text anew for each
    token, as the mixture does that it is of one policy alone.
    """

    def __init__(self, policy: "Policy", allowed_at: "AllowedAt", *, batch_size: int = 512) -> None:
        super().__init__(policy, policy.model, share=0.0, batch_size=batch_size)
        self._allowed_at = allowed_at
        self._temperature = 1.0

    def _drawn(
        self, prompts: Sequence[Prompt], keys: RowKeys, params: SamplingParams
    ) -> list[tuple[list[int], list[float]]]:
        self._temperature = 1.0 if params.greedy else params.temperature
        return super()._drawn(prompts, keys, params)

    def _logits(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """The policy's logits behind each row, -inf at the tokens that may not come next."""
        lengths = torch.tensor([len(row) for row in rows])
        # One place more than the longest row: that of its next token.
        width, device = int(lengths.max()) + 1, self.policy.model.device
        ids_BT = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)
        next_B1 = lengths.to(device)[:, None]
        wanted_BT = torch.arange(width, device=device) == next_B1
        logits_BTV: Tensor = self.policy.model(input_ids=ids_BT[:, :-1]).logits
        every_B = torch.arange(len(rows), device=device)
        last_BV = logits_BTV[every_B, next_B1[:, 0] - 1].float()
        allowed_BV = self._allowed_at(ids_BT, wanted_BT, self._temperature)(0, len(rows))
        return last_BV.masked_fill(~allowed_BV, -torch.inf)
