"""Optimizers: several of torch's as one object with one step and one state."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from posttrain.learning.models.muon import BatchedMuon
from posttrain.learning.models.optimization import OptimizerKind
from posttrain.stage.errors import UserError


class NotFiniteError(UserError):
    """A loss or a gradient is NaN or infinite; the weights are still those before the step."""


class Optimizer:
    """A few torch optimizers that step as one, with clipping and one learning rate."""

    def __init__(
        self, parameters: list[nn.Parameter], parts: Mapping[str, torch.optim.Optimizer]
    ) -> None:
        self.parameters = parameters
        self.parts = dict(parts)

    def step(self, *, learning_rate: float, max_grad_norm: float) -> float:
        """Clip the gradients, take one step, and drop the gradients.

        Args:
            learning_rate: Rate of this step, on AdamW's scale, for every parameter.
            max_grad_norm: Gradients of a larger norm are scaled down to it.

        Returns:
            The norm of the gradients before clipping.

        Raises:
            NotFiniteError: The norm is NaN or infinite; the weights have not moved.

        """
        norm = self.clip(max_grad_norm)
        self.move(learning_rate)
        return norm

    def clip(self, max_grad_norm: float) -> float:
        """Scale the gradients down to a norm, if theirs is larger.

        Args:
            max_grad_norm: The norm.

        Returns:
            The norm of the gradients before.

        Raises:
            NotFiniteError: It is NaN or infinite.

        """
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = self.whole(nn.utils.get_total_norm(gradients, foreach=True))
        nn.utils.clip_grads_with_norm_(self.parameters, max_grad_norm, norm, foreach=True)
        scalar = float(norm)
        if not math.isfinite(scalar):
            raise NotFiniteError(
                f"the gradient is {scalar}, so training stopped; "
                "lower the learning rate or look for a broken batch"
            )
        return scalar

    def move(self, learning_rate: float) -> None:
        """Take one step along the gradients as they are, and drop them."""
        for part in self.parts.values():
            for group in part.param_groups:
                group["lr"] = learning_rate
            part.step()
        for parameter in self.parameters:
            parameter.grad = None

    def forget(self) -> None:
        """Drop what earlier gradients have left, so that the next step is like the first."""
        for part in self.parts.values():
            part.state.clear()

    def whole(self, norm: Tensor) -> Tensor:
        """The norm of all gradients; a subclass may have to put it together."""
        return norm

    def state_dict(self) -> dict[str, Any]:
        """The states of the parts, by name."""
        return {name: part.state_dict() for name, part in self.parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a state written by `state_dict`."""
        for name, part in self.parts.items():
            part.load_state_dict(state[name])


def build_optimizer(
    model: nn.Module,
    *,
    kind: OptimizerKind = "adamw",
    weight_decay: float = 0.0,
    muon: type[BatchedMuon] = BatchedMuon,
) -> Optimizer:
    """Build AdamW for everything, or Muon for the matrices of the layers and AdamW for the rest.

    Muon's rate is on AdamW's scale (``match_rms_adamw``), so one learning rate serves both; every
    step is given its own. Embeddings, norms and biases are not pulled to zero.

    Args:
        model: Its parameters that require a gradient are optimized.
        kind: Which optimizer takes the matrices of the layers.
        weight_decay: Decoupled weight decay of the matrices.
        muon: The class that takes the matrices, where `kind` is muon.

    Returns:
        One object that steps, clips, and has one state.

    Source: AdamW, arXiv 1711.05101; Muon, Jordan et al. 2024.

    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    heads = {id(m.weight) for m in _output_heads(model)}
    matrices = [p for _, p in named if p.ndim == 2 and id(p) not in embeddings | heads]
    chosen = {id(p) for p in matrices}
    rest = [p for _, p in named if id(p) not in chosen]
    everything = [p for _, p in named]
    if kind == "muon":
        first = muon(matrices, learning_rate=0.0, weight_decay=weight_decay)
        parts: dict[str, torch.optim.Optimizer] = {"muon": first}
        if rest:
            # Adapters are matrices, so nothing is left to AdamW where only they are trained.
            parts["adamw"] = _adamw(rest)
        return Optimizer(everything, parts)
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return Optimizer(
        everything,
        {"adamw": _adamw(groups)},
    )


def _adamw(parameters: Any) -> torch.optim.AdamW:
    """Torch's fused AdamW; each step sets the rate, and groups their weight decay."""
    return torch.optim.AdamW(parameters, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0, fused=True)


def _output_heads(model: nn.Module) -> list[nn.Linear]:
    """Linear layers outside the decoder stack: the language-model head or the reward head."""
    names = {"lm_head", "score", "embed_out"}
    return [m for name, m in model.named_children() if name in names and isinstance(m, nn.Linear)]
