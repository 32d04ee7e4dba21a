"""Optimisers and learning-rate schedules; one object with one step and one state."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import nn

from posttrain.learning.models.adamw import SteadyAdamW
from posttrain.learning.models.muon import BatchedMuon
from posttrain.stage.errors import UserError

OptimizerKind = Literal["adamw", "muon"]
ScheduleKind = Literal["constant", "linear", "cosine", "constant_then_decay"]

_EPSILON = 1e-6
"""What torch's clipping adds to a norm before it divides by it."""


class NotFiniteError(UserError):
    """A loss or a gradient is NaN or infinite; the weights are still those before the step."""


class Optimizer:
    """A few torch optimisers that step as one, with clipping and a scaled learning rate."""

    def __init__(
        self, parameters: list[nn.Parameter], parts: Mapping[str, torch.optim.Optimizer]
    ) -> None:
        self.parameters = parameters
        self.parts = dict(parts)
        self._rates = {
            name: [group["lr"] for group in part.param_groups] for name, part in parts.items()
        }

    def step(self, *, factor: float, max_grad_norm: float) -> float:
        """Clip, step at `factor` times the base rates, drop the gradients; returns the raw norm."""
        norm = self.clip(max_grad_norm)
        if not math.isfinite(norm):
            raise NotFiniteError(
                f"the gradient is {norm}, so training stopped; "
                "lower the learning rate or look for a broken batch"
            )
        for name, part in self.parts.items():
            for group, rate in zip(part.param_groups, self._rates[name], strict=True):
                group["lr"] = rate * factor
            part.step()
        for parameter in self.parameters:
            parameter.grad = None
        return norm

    def clip(self, max_grad_norm: float) -> float:
        """Scale the gradients down to the norm, if theirs is larger; returns theirs."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        if not gradients:
            return 0.0
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        found = float(norm)
        # What torch's own clipping would multiply by 1 is left alone.
        if not found + _EPSILON <= max_grad_norm:
            torch._foreach_mul_(gradients, max_grad_norm / (norm + _EPSILON))
        return found

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
    learning_rate: float,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.95),
    muon: type[BatchedMuon] = BatchedMuon,
) -> Optimizer:
    """AdamW for everything, or Muon for the matrices of the layers and AdamW for the rest.

    Muon's rate is on AdamW's scale (``match_rms_adamw``), so one `learning_rate` serves both.
    Weight decay falls on matrices only: embeddings, norms and biases are not pulled to zero. `muon`
    is the class that takes the matrices.
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    heads = {id(m.weight) for m in _output_heads(model)}
    matrices = [p for _, p in named if p.ndim == 2 and id(p) not in embeddings | heads]
    chosen = {id(p) for p in matrices}
    rest = [p for _, p in named if id(p) not in chosen]
    everything = [p for _, p in named]
    if kind == "muon":
        first = muon(matrices, learning_rate=learning_rate, weight_decay=weight_decay)
        adamw = SteadyAdamW(rest, learning_rate=learning_rate, betas=betas)
        return Optimizer(everything, {"muon": first, "adamw": adamw})
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return Optimizer(
        everything,
        {"adamw": SteadyAdamW(groups, learning_rate=learning_rate, betas=betas)},
    )


def learning_rate_factor(
    step: int,
    *,
    num_steps: int,
    schedule: ScheduleKind,
    warmup_steps: int = 0,
    decay_fraction: float = 0.2,
) -> float:
    """Multiple of the base rate at 0-based `step`: linear warm-up, then the named shape.

    `constant_then_decay` falls linearly over the last `decay_fraction` of the steps. Decays reach
    their lowest, still positive, value at the last step.
    """
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    left = (num_steps - step) / max(1, num_steps - warmup_steps)
    return SCHEDULES[schedule](min(1.0, max(0.0, left)), decay_fraction)


def _constant(_left: float, _decay_fraction: float) -> float:
    return 1.0


def _linear(left: float, _decay_fraction: float) -> float:
    return left


def _cosine(left: float, _decay_fraction: float) -> float:
    return 0.5 * (1.0 - math.cos(math.pi * left))


def _constant_then_decay(left: float, decay_fraction: float) -> float:
    return min(1.0, left / decay_fraction) if decay_fraction > 0 else 1.0


SCHEDULES = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
    "constant_then_decay": _constant_then_decay,
}


def _output_heads(model: nn.Module) -> list[nn.Linear]:
    """Linear layers outside the decoder stack: the language-model head or the reward head."""
    names = {"lm_head", "score", "embed_out"}
    return [m for name, m in model.named_children() if name in names and isinstance(m, nn.Linear)]
