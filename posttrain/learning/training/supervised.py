"""The training loop of every supervised stage: pretraining, SFT, reward models, preferences."""

import time

from posttrain.data.batching import AnyBatch
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.load import weights_digest
from posttrain.learning.training.best_weights import BestWeights
from posttrain.learning.training.config import TrainingConfig
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.failed_batch import kept_for_replay
from posttrain.learning.training.generators import seed_torch
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.progress import Stateful, run_identity
from posttrain.learning.training.stopping import StopRule
from posttrain.learning.training.task import Loss as Loss
from posttrain.learning.training.task import TrainingTask as TrainingTask
from posttrain.learning.training.trainer import SupervisedTrainer
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.schedule import Schedules
from posttrain.stage.seeds import purpose_seed


def train(
    trainable: Trainable,
    task: TrainingTask[AnyBatch],
    *,
    config: TrainingConfig,
    context: StageContext,
    curve: Curve,
    prefix: str,
) -> int:
    """Train in place over all steps of the task, or until the early stop.

    Goes on from a killed attempt. Everything random in a step follows from the seed and the step,
    so no generator's state needs saving. A loss or gradient that is not finite stops the run and
    keeps the batch.

    Args:
        trainable: The model, with its adapter and average.
        task: The batches of every step, and the loss of one.
        config: Optimization, checkpoints, early stop.
        context: Of the stage: seed, scratch folder, progress.
        curve: Takes the metrics, as ``prefix/name``.
        prefix: Of the metrics' names.

    Returns:
        The steps made.

    """
    num_steps = len(task.batches.steps)
    identity = run_identity(
        config, seed=context.seed, weights=weights_digest(trainable.model), **task.digests
    )
    trainer = open_trainer(trainable, task, context)
    trainable, optimizer = trainer.trainable, trainer.optimizer(config.optimization)
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
    progress = trainer.progress(
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
            parts = trainer.micro_batches(step)
        step += 1
        with kept_for_replay(context.scratch, trainer.weights(), parts, step=step, seed=seed):
            metrics = trainer.backward(parts, where=f"{prefix} step {step}")
            metrics["grad_norm"] = optimizer.step(
                learning_rate=rate, max_grad_norm=now.max_grad_norm
            )
        trainable.after_step()
        metrics["learning_rate"] = rate
        if rule and stopping and task.heldout and step % stopping.every == 0:
            metrics["heldout_loss"] = trainer.heldout_loss()
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
    trainer.finish()
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
            "trainer.early_stop.keep best copies whole weights, but several processes have a part"
            " each; set keep to last, or leave resources.processes out"
        )
    return BestWeights(trainable)


def open_trainer(
    trainable: Trainable, task: TrainingTask[AnyBatch], context: StageContext
) -> SupervisedTrainer[AnyBatch]:
    """Return what takes the steps; several processes shard the model."""
    if context.processes == 1:
        return SupervisedTrainer(trainable, task, context)
    from posttrain.learning.training.sharded import ShardedSupervisedTrainer

    return ShardedSupervisedTrainer(trainable, task, context)
