"""The training loop of every supervised stage: pretraining, SFT, reward models, preferences."""

import time
from dataclasses import replace

from posttrain.data.batching import AnyBatch
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.load import weights_digest
from posttrain.learning.training.config import TrainingConfig
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.early_stop import EarlyStop
from posttrain.learning.training.failed_batch import kept_for_replay
from posttrain.learning.training.generators import seed_step
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.progress import Stateful, run_identity
from posttrain.learning.training.supervised_objective import SupervisedObjective
from posttrain.learning.training.trainer import SupervisedTrainer
from posttrain.stage.context import StageContext
from posttrain.stage.schedule import NumberSchedules


def train(
    trainable: Trainable,
    objective: SupervisedObjective[AnyBatch],
    *,
    config: TrainingConfig,
    context: StageContext,
    curve: Curve,
    prefix: str,
) -> int:
    """Train in place over every planned step, or until the early stop.

    Goes on from a killed attempt. Everything random in a step follows from the seed and the step,
    so no generator's state needs saving. A loss or gradient that is not finite stops the run and
    keeps the batch.

    Args:
        trainable: The model, with its adapter and average.
        objective: The batches of every step, and the loss of one.
        config: Optimization, checkpoints, early stop.
        context: Of the stage: seed, scratch folder, progress.
        curve: Takes the metrics, as ``prefix/name``.
        prefix: Of the metrics' names.

    Returns:
        The steps made.

    """
    num_steps = len(objective.batches.steps)
    identity = run_identity(
        config, seed=context.seed, weights=weights_digest(trainable.model), **objective.digests
    )
    trainer = open_trainer(trainable, objective, context)
    trainable, optimizer = trainer.trainable, trainer.optimizer(config.optimization)
    early_stop = EarlyStop(config.learner.early_stop, trainable, context)
    schedules = NumberSchedules(config)
    changing: dict[str, Stateful] = {"optimizer": optimizer, "curve": curve, **early_stop.parts()}
    progress = trainer.progress(
        {"schedules": schedules, **changing} if schedules.followed else changing,
        Checkpointer(
            context.scratch, every=config.checkpoint_every, identity=identity, note=context.note
        ),
    )
    step = progress.restore(context.device)
    if step:
        context.note(f"resuming after step {step} of {num_steps}")
    trainable.model.train()
    while step < num_steps and not early_stop.stopped:
        started = time.perf_counter()
        seed = seed_step(context.seed, "train", step)
        changed = schedules.at(step)
        if trainer.objective.loss_at and changed is not config:
            loss = trainer.objective.loss_at(changed)
            trainer.objective = replace(trainer.objective, loss=loss)
        now = changed.optimization
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
        if objective.heldout and early_stop.due(step):
            metrics["heldout_loss"] = trainer.heldout_loss()
            early_stop.observe(step, metrics["heldout_loss"])
        named = {f"{prefix}/{name}": value for name, value in metrics.items()}
        schedules.observe(named)
        curve.log(step, named)
        # Wall-clock goes to the tracker only: it must not reach an artifact.
        context.log(step, {f"{prefix}/seconds_per_step": time.perf_counter() - started})
        context.progress(step, num_steps)
        progress.save_if_due(step)
    trainer.finish()
    early_stop.finish(step, num_steps=num_steps)
    return step


def open_trainer(
    trainable: Trainable, objective: SupervisedObjective[AnyBatch], context: StageContext
) -> SupervisedTrainer[AnyBatch]:
    """Choose what takes the steps; several processes shard the model.

    Args:
        trainable: The model, with its adapter and average.
        objective: The batches of every step, and the loss of one.
        context: Of the stage: number of processes, device.

    Returns:
        The trainer of this process.

    """
    if context.processes == 1:
        return SupervisedTrainer(trainable, objective, context)
    from posttrain.learning.training.sharded import ShardedSupervisedTrainer

    return ShardedSupervisedTrainer(trainable, objective, context)
