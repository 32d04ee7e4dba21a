"""The training loop of every supervised stage: pretraining, SFT, reward models, preferences."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic

import torch
from torch import Tensor

from posttrain.data.batching import AnyBatch, Batches
from posttrain.models.checkpoint import Checkpointer
from posttrain.models.load import weights_digest
from posttrain.models.optim import NotFiniteError, build_optimizer, learning_rate_factor
from posttrain.pipeline.context import StageContext
from posttrain.sampling.noise import purpose_seed
from posttrain.training.config import OptimisationConfig
from posttrain.training.curve import Curve
from posttrain.training.failed_batch import kept_for_replay
from posttrain.training.prepare import Trainable
from posttrain.training.progress import Progress, run_identity
from posttrain.training.stopping import StopRule

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Loss = Callable[["PreTrainedModel", AnyBatch, float], tuple[Tensor, Mapping[str, Tensor]]]


@dataclass(frozen=True)
class Lesson(Generic[AnyBatch]):
    """What is learnt, and from which batches.

    `loss(model, micro_batch, denominator)` is given the units of the whole step, so that micro-
    batches add up to the one-batch gradient; its metrics must be means over the units. `heldout` is
    measured for the early stop. `digests` name the inputs: a checkpoint made of others is refused.
    `gather(model, parts)` may complete a step's parts by what depends on all of them.
    """

    batches: Batches[AnyBatch]
    loss: Loss[AnyBatch]
    heldout: Batches[AnyBatch] | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    gather: Callable[["PreTrainedModel", list[AnyBatch]], list[AnyBatch]] | None = None

    def parts(self, model: "PreTrainedModel", step: int, device: str) -> list[AnyBatch]:
        """The micro-batches of 0-based `step`."""
        parts = [batch.to(device) for batch in self.batches.micro_batches(step)]
        return self.gather(model, parts) if self.gather else parts


def train(
    trainable: Trainable,
    lesson: Lesson[AnyBatch],
    *,
    config: OptimisationConfig,
    context: StageContext,
    curve: Curve,
    prefix: str,
) -> int:
    """Train in place over all steps of the lesson, or until the early stop; returns the steps made.

    Goes on from a killed attempt. Everything random in a step follows from the seed and the step,
    so no generator's state needs saving. Metrics are recorded as ``prefix/name``. A loss or
    gradient that is not finite stops the run and keeps the batch.
    """
    model, num_steps = trainable.model, len(lesson.batches.steps)
    optimizer = build_optimizer(
        model,
        kind=config.optimizer,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
    )
    stopping = config.learner.early_stop
    rule = StopRule(stopping, better="lower") if stopping else None
    progress = Progress(
        trainable.parts()
        | {"optimizer": optimizer, "curve": curve}
        | ({"stopping": rule} if rule else {}),
        Checkpointer(
            context.scratch,
            every=config.checkpoint_every,
            identity=run_identity(
                config, seed=context.seed, weights=weights_digest(model), **lesson.digests
            ),
            note=context.note,
        ),
    )
    step = progress.restore(context.device)
    if step:
        context.note(f"resuming after step {step} of {num_steps}")
    model.train()
    while step < num_steps and not (rule and rule.stopped):
        started = time.perf_counter()
        seed = purpose_seed(context.seed, "train", step)
        torch.manual_seed(seed)
        factor = learning_rate_factor(
            step,
            num_steps=num_steps,
            schedule=config.schedule,
            warmup_steps=config.warmup_steps,
            decay_fraction=config.decay_fraction,
        )
        with trainable.computing():
            parts = lesson.parts(model, step, context.device)
        step += 1
        with kept_for_replay(context.scratch, model, parts, step=step, seed=seed):
            where = f"{prefix} step {step}"
            metrics = _backward(trainable, parts, lesson.loss, where=where)
            metrics["grad_norm"] = optimizer.step(factor=factor, max_grad_norm=config.max_grad_norm)
        trainable.after_step()
        metrics["learning_rate"] = config.learning_rate * factor
        if rule and stopping and lesson.heldout and step % stopping.every == 0:
            metrics["heldout_loss"] = heldout_loss(trainable, lesson, context.device)
            rule.observe(metrics["heldout_loss"])
        curve.log(step, {f"{prefix}/{name}": value for name, value in metrics.items()})
        # Wall-clock goes to the tracker only: it must not reach an artifact.
        context.log(step, {f"{prefix}/seconds_per_step": time.perf_counter() - started})
        context.progress(step, num_steps)
        progress.save_if_due(step)
    if rule and rule.stopped:
        context.note(f"stopped after step {step} of {num_steps}: the held-out loss falls no more")
    trainable.finish()
    return step


def heldout_loss(trainable: Trainable, lesson: Lesson[AnyBatch], device: str) -> float:
    """The loss on all held-out batches, per unit, in evaluation mode."""
    if lesson.heldout is None:
        raise ValueError("this lesson holds nothing out")
    total, num_units = 0.0, 0
    trainable.model.eval()
    with torch.no_grad(), trainable.computing():
        for index in range(len(lesson.heldout.steps)):
            for part in lesson.heldout.micro_batches(index):
                value, _ = lesson.loss(trainable.model, part.to(device), 1.0)
                total, num_units = total + float(value), num_units + part.num_units
    trainable.model.train()
    return total / num_units


def _backward(
    trainable: Trainable, parts: Sequence[AnyBatch], loss: Loss[AnyBatch], *, where: str
) -> dict[str, float]:
    """Accumulate the gradient of one step; returns the loss and its metrics over all units."""
    num_units = sum(part.num_units for part in parts)
    totals: dict[str, float] = {}
    for part in parts:
        with trainable.computing():
            value, metrics = loss(trainable.model, part, float(num_units))
        scalar = float(value.detach())
        if not math.isfinite(scalar):
            raise NotFiniteError(
                f"{where}: the loss is {scalar}, so training stopped; "
                "lower the learning rate or look for a broken row in the data"
            )
        value.backward()  # type: ignore[no-untyped-call]
        totals["loss"] = totals.get("loss", 0.0) + scalar
        for name, metric in metrics.items():
            share = float(metric) * part.num_units / num_units
            totals[name] = totals.get(name, 0.0) + share
    return totals
