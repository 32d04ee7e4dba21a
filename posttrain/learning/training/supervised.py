"""The training loop of every supervised stage: pretraining, SFT, reward models, preferences."""

import time
from contextlib import closing
from dataclasses import replace
from functools import partial

from posttrain.data.batching import AnyBatch
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.load import weights_digest
from posttrain.learning.training.config import TrainingConfig
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.early_stop import EarlyStop
from posttrain.learning.training.failed_batch import kept_for_replay
from posttrain.learning.training.generators import seed_step
from posttrain.learning.training.open_trainer import open_trainer
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.progress import Stateful, run_identity
from posttrain.learning.training.supervised_objective import SupervisedObjective
from posttrain.stage.config import refuse_processes
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
    refuse_processes(config, context.processes, where=prefix)
    num_steps = len(objective.batches.steps)
    identity = run_identity(
        config, seed=context.seed, weights=weights_digest(trainable.model), **objective.digests
    )
    trainer = open_trainer(trainable, objective, context)
    trainable, optimizer = trainer.trainable, trainer.optimizer(config.optimization)
    early_stop = EarlyStop(config.learner.early_stop, trainable, context)
    schedules = NumberSchedules(config)
    changing: dict[str, Stateful] = {"optimizer": optimizer, "curve": curve, **early_stop.parts()}
    checkpointer = Checkpointer(
        context.scratch,
        every=config.checkpoint_every,
        config=config.learner.checkpoints,
        identity=identity,
        note=context.note,
    )
    progress = trainer.progress(
        {"schedules": schedules, **changing} if schedules.followed else changing, checkpointer
    )
    with closing(checkpointer):
        # Moments that lie in the host's memory would not fit beside the model even for a moment.
        step = progress.restore("cpu" if config.optimization.offload else context.device)
        if step:
            context.note(f"resuming after step {step} of {num_steps}")
        heed = partial(curve.heed, config.alarms, stage=prefix, steps=num_steps)
        heed(step)
        trainable.model.train()
        while step < num_steps and not early_stop.stopped:
            started = time.perf_counter()
            seed = seed_step(context.seed, "train", step)
            changed = schedules.at(step)
            if objective.loss_at and changed is not config:
                loss = objective.loss_at(changed)
                trainer.objective = replace(trainer.objective, loss=loss)
            now = changed.optimization
            rate = now.learning_rate * now.factor(step, num_steps=num_steps)
            with trainable.computing():
                parts = trainer.micro_batches(step)
            step += 1
            with kept_for_replay(context.scratch, trainer.weights(), parts, step=step, seed=seed):
                optimizer.begin(rate)
                metrics = trainer.backward(parts, optimizer, where=f"{prefix} step {step}")
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
            heed(step, save=progress.save_once)
    early_stop.finish(step, num_steps=num_steps)
    best = early_stop.best
    trainer.finish(None if best is None else best.put_in_place)
    return step
