"""Tokens that count by how much the rollouts of a problem differ where they stand."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, needed
from posttrain.learning.algorithms.token_weights.base import TokenWeight

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_LOG_RATIO = 11.0
"""Nats that the log-ratio of two probabilities counts at most."""


class DivergenceWeight(TokenWeight):
    """From 1 to `most` by the divergence of a group's distributions from their mean at a place.

    The place is the how-many-th drawn token it is. The mean is that of log-probabilities; a rollout
    that is over counts as undecided; places of a group are scaled from the least divergence to the
    largest.
    """

    SOURCE = (
        "TW-GRPO, arXiv 2505.24718; longmalongma/TW-GRPO at aa529ff, grpo_trainer.py"
        " (compute_token_importance_kl_logs_uniform)"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"distribution", "whole_groups"})

    kind: Literal["divergence"] = "divergence"
    """Learn most where the answers to one problem part."""
    most: float = Field(default=1.7, ge=1.0)
    """The largest weight."""

    def of_update(
        self,
        logprobs_BT: "Tensor",
        *,
        old_logprobs_BT: "Tensor",  # noqa: ARG002
        batch: PolicyBatch,
    ) -> "Tensor | None":
        """Weigh the places of each group; see `TokenWeight.of_update`."""
        import torch

        what = "token weight divergence"
        log_all_NV = needed(batch.log_all_NV, "log_all_NV", what).detach()
        group_B = needed(batch.group_B, "group_B", what)
        mask_BT = batch.mask_BT.bool()
        weights_BT = torch.zeros_like(logprobs_BT)
        first_B = torch.nn.functional.pad(mask_BT.sum(-1).cumsum(0), (1, 0)).tolist()
        for group in sorted(set(group_B.tolist())):
            rows = (group_B == group).nonzero()[:, 0].tolist()
            drawn = [log_all_NV[first_B[row] : first_B[row + 1]] for row in rows]
            for row, scaled_T in zip(rows, self._of_group(drawn), strict=True):
                weights_BT[row, mask_BT[row]] = 1.0 + (self.most - 1.0) * scaled_T
        return weights_BT

    def _of_group(self, drawn: "list[Tensor]") -> "list[Tensor]":
        """Scale the divergence at each place of some rows ``[T, V]`` to [0, 1]. ``[T]`` each."""
        import torch

        lengths = [len(each) for each in drawn]
        undecided = -torch.tensor(float(drawn[0].shape[-1])).log().item()
        log_all_GTV = torch.nn.utils.rnn.pad_sequence(
            drawn, batch_first=True, padding_value=undecided
        )
        away_GTV = log_all_GTV.mean(0, keepdim=True) - log_all_GTV
        away_GTV = away_GTV.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
        divergence_T = (away_GTV.exp() - away_GTV - 1).sum(-1).mean(0)
        least, largest = divergence_T.min(), divergence_T.max()
        scaled_T = (divergence_T - least) / (largest - least + 1e-8)
        return [scaled_T[:length] for length in lengths]

    def describe(self) -> str:
        """`divergence up to 1.7`."""
        return f"divergence up to {self.most:g}"
