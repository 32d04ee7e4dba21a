"""Muon for the matrices of the layers, AdamW for the rest."""

from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.models.optimizers.adamw import fused_adamw
from posttrain.learning.models.optimizers.base import OptimizerPart, StateFormat, TrainedTensors

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch


class Muon(OptimizerPart):
    """Orthogonalize the updates of the layers' matrices; embeddings, heads and norms have AdamW.

    Its rate is on AdamW's scale (``match_rms_adamw``), so one learning rate serves both.

    Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon.
    """

    # Matrices of one shape are orthogonalized together, which wants the gradients of all.
    BY_PARAMETER: ClassVar[bool] = False
    ELEMENTWISE: ClassVar[bool] = False

    kind: Literal["muon"] = "muon"

    def build(
        self, tensors: TrainedTensors, *, weight_decay: float, states: StateFormat, sharded: bool
    ) -> "Mapping[str, torch.optim.Optimizer]":
        """Take both, or Muon alone for adapters, all matrices; see `OptimizerPart.build`."""
        from posttrain.learning.models.distributed.optim import ShardedMuon
        from posttrain.learning.models.muon import BatchedMuon

        muon = ShardedMuon if sharded else BatchedMuon
        made: dict[str, torch.optim.Optimizer] = {
            "muon": muon(list(tensors.matrices), learning_rate=0.0, weight_decay=weight_decay)
        }
        if tensors.others:
            made["adamw"] = fused_adamw(list(tensors.others))
        return made
