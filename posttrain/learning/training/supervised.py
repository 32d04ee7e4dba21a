"""The training loop of every supervised stage: pretraining, SFT, reward models, preferences."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic

from torch import Tensor

from posttrain.data.batching import AnyBatch, Batches
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.load import weights_digest
from posttrain.learning.rollouts.engines.noise import purpose_seed
from posttrain.learning.training.best_weights import BestWeights
from posttrain.learning.training.config import TrainingConfig
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.failed_batch import kept_for_replay
from posttrain.learning.training.generators import seed_torch
from posttrain.learning.training.learner import Learner
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.progress import Stateful, run_identity
from posttrain.learning.training.stopping import StopRule
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.schedule import Schedules

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
    config: TrainingConfig,
    context: StageContext,
    curve: Curve,
    prefix: str,
) -> int:
    """Train in place over all steps of the lesson, or until the early stop.

    Goes on from a killed attempt. Everything random in a step follows from the seed and the step,
    so no generator's state needs saving. A loss or gradient that is not finite stops the run and
    keeps the batch.

    Args:
        trainable: The model, with its adapter and average.
        lesson: The batches of every step, and the loss of one.
        config: Optimization, checkpoints, early stop.
        context: Of the stage: seed, scratch folder, progress.
        curve: Takes the metrics, as ``prefix/name``.
        prefix: Of the metrics' names.

    Returns:
        The steps made.

    """
    num_steps = len(lesson.batches.steps)
    identity = run_identity(
        config, seed=context.seed, weights=weights_digest(trainable.model), **lesson.digests
    )
    learner = learner_of(trainable, lesson, context)
    trainable, optimizer = learner.trainable, learner.optimizer(config.optimization)
    stopping = config.learner.early_stop
    rule = StopRule(stopping, better="lower") if stopping else None
    best = best_weights(trainable, config, context)
    schedules = Schedules(config)
    changing: dict[str, Stateful | None] = {
        "schedules": schedules if schedules.followed else None,
        "optimizer": optimizer,
        "curve": curve,
        "stopping": rule,
        "best": best,
    }
    progress = learner.progress(
        {name: part for name, part in changing.items() if part is not None},
        Checkpointer(
            context.scratch, every=config.checkpoint_every, identity=identity, note=context.note
        ),
    )
    step = progress.restore(context.device)
    if step:
        context.note(f"resuming after step {step} of {num_steps}")
    trainable.model.train()
    while step < num_steps and not (rule and rule.stopped):
        started = time.perf_counter()
        seed = purpose_seed(context.seed, "train", step)
        seed_torch(seed)
        now = schedules.at(step).optimization
        rate = now.learning_rate * now.factor(step, num_steps=num_steps)
        with trainable.computing():
            parts = learner.micro_batches(step)
        step += 1
        with kept_for_replay(context.scratch, learner.weights(), parts, step=step, seed=seed):
            metrics = learner.backward(parts, where=f"{prefix} step {step}")
            metrics["grad_norm"] = optimizer.step(
                learning_rate=rate, max_grad_norm=now.max_grad_norm
            )
        trainable.after_step()
        metrics["learning_rate"] = rate
        if rule and stopping and lesson.heldout and step % stopping.every == 0:
            metrics["heldout_loss"] = learner.heldout_loss()
            rule.observe(metrics["heldout_loss"])
            if best and rule.improved:
                best.mark()
                best.keep(step)
        named = {f"{prefix}/{name}": value for name, value in metrics.items()}
        schedules.observe(named)
        curve.log(step, named)
        # Wall-clock goes to the tracker only: it must not reach an artifact.
        context.log(step, {f"{prefix}/seconds_per_step": time.perf_counter() - started})
        context.progress(step, num_steps)
        progress.save_if_due(step)
    if rule and rule.stopped:
        context.note(f"stopped after step {step} of {num_steps}: the held-out loss falls no more")
    learner.finish()
    if best and best.step:
        best.put_in_place()
        context.note(f"the weights are those after step {best.step}, the best that were measured")
    return step


def best_weights(
    trainable: Trainable, config: TrainingConfig, context: StageContext
) -> BestWeights | None:
    """What keeps the best weights, where the early stop asks for it."""
    stopping = config.learner.early_stop
    if stopping is None or stopping.keep == "last":
        return None
    if context.processes > 1:
        raise UserError(
            "learner.early_stop.keep best copies whole weights, but several processes have a part"
            " each; set keep to last, or leave resources.processes out"
        )
    return BestWeights(trainable)


def learner_of(
    trainable: Trainable, lesson: Lesson[AnyBatch], context: StageContext
) -> Learner[AnyBatch]:
    """Who takes the steps; several processes shard the model, and import what that takes."""
    if context.processes == 1:
        return Learner(trainable, lesson, context)
    from posttrain.learning.training.sharded import ShardedLearner

    return ShardedLearner(trainable, lesson, context)
