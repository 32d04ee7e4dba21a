"""The training loop of every supervised stage: pretraining, SFT, reward models."""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from posttrain.data.batching import AnyBatch, Batches
from posttrain.errors import UserError
from posttrain.models.checkpoint import Checkpointer
from posttrain.models.optim import Optimizer, build_optimizer, learning_rate_factor
from posttrain.pipeline.context import StageContext
from posttrain.training.config import OptimisationConfig
from posttrain.training.curve import Curve

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Loss = Callable[["PreTrainedModel", AnyBatch, float], tuple[Tensor, Mapping[str, Tensor]]]


@dataclass(frozen=True)
class Progress:
    """Everything that changes while training runs: what a checkpoint holds."""

    model: "PreTrainedModel"
    optimizer: Optimizer
    curve: Curve

    def save(self, checkpointer: Checkpointer, step: int) -> None:
        """Write a checkpoint of the state after `step` steps."""
        states = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "curve": self.curve.state_dict(),
        }
        checkpointer.save(step, states)

    def restore(self, checkpointer: Checkpointer, device: str) -> int:
        """Take up the newest checkpoint, if there is one; returns the steps that are done."""
        snapshot = checkpointer.load(device=device)
        if snapshot is None:
            return 0
        self.model.load_state_dict(snapshot.states["model"])
        self.optimizer.load_state_dict(snapshot.states["optimizer"])
        self.curve.load_state_dict(snapshot.states["curve"])
        return snapshot.step


def train(
    model: "PreTrainedModel",
    batches: Batches[AnyBatch],
    loss: Loss[AnyBatch],
    *,
    config: OptimisationConfig,
    context: StageContext,
    curve: Curve,
    prefix: str,
) -> None:
    """Train `model` in place over all steps of `batches`; goes on from a killed attempt.

    `loss(model, micro_batch, denominator)` is given the units of the whole step, so that micro-
    batches add up to the one-batch gradient. Its metrics must be means over the units; they are
    recorded as ``prefix/name``. A loss or gradient that is not finite stops the run.
    """
    num_steps = len(batches.steps)
    optimizer = build_optimizer(
        model,
        kind=config.optimizer,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
    )
    progress = Progress(model, optimizer, curve)
    checkpointer = Checkpointer(context.scratch, every=config.checkpoint_every, note=context.note)
    first = progress.restore(checkpointer, context.device)
    if first:
        context.note(f"resuming after step {first} of {num_steps}")
    model.train()
    for step in range(first, num_steps):
        started = time.perf_counter()
        torch.manual_seed(_step_seed(context.seed, step))
        factor = learning_rate_factor(
            step,
            num_steps=num_steps,
            schedule=config.schedule,
            warmup_steps=config.warmup_steps,
            decay_fraction=config.decay_fraction,
        )
        parts = [batch.to(context.device) for batch in batches.micro_batches(step)]
        metrics = _backward(model, parts, loss, where=f"{prefix} step {step + 1}")
        metrics["grad_norm"] = optimizer.step(factor=factor, max_grad_norm=config.max_grad_norm)
        metrics["learning_rate"] = config.learning_rate * factor
        curve.log(step + 1, {f"{prefix}/{name}": value for name, value in metrics.items()})
        # Wall-clock goes to the tracker only: it must not reach an artifact.
        context.log(step + 1, {f"{prefix}/seconds_per_step": time.perf_counter() - started})
        context.progress(step + 1, num_steps)
        if checkpointer.due(step + 1):
            progress.save(checkpointer, step + 1)
    model.eval()


def _backward(
    model: "PreTrainedModel", parts: Sequence[AnyBatch], loss: Loss[AnyBatch], *, where: str
) -> dict[str, float]:
    """Accumulate the gradient of one step; returns the loss and its metrics over all units."""
    num_units = sum(part.num_units for part in parts)
    totals: dict[str, float] = {}
    for part in parts:
        value, metrics = loss(model, part, float(num_units))
        scalar = float(value.detach())
        if not math.isfinite(scalar):
            raise UserError(
                f"{where}: the loss is {scalar}, so training stopped; "
                "lower the learning rate or look for a broken row in the data"
            )
        value.backward()  # type: ignore[no-untyped-call]
        totals["loss"] = totals.get("loss", 0.0) + scalar
        for name, metric in metrics.items():
            share = float(metric) * part.num_units / num_units
            totals[name] = totals.get(name, 0.0) + share
    return totals


def _step_seed(seed: int, step: int) -> int:
    """A seed per step, so that dropout needs no saved generator state."""
    return int.from_bytes(hashlib.sha256(f"{seed}:train:{step}".encode()).digest()[:7], "big")
