"""Retrain the learner from stored rollouts alone: no problems, no sampling, no rewards computed."""

from collections.abc import Mapping
from pathlib import Path

from posttrain.data.schemas import ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.advantages import bearing_loss
from posttrain.learning.rl.buffer import Buffer, Generation
from posttrain.learning.rl.build import build_learner
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.rollout import stored_groups
from posttrain.learning.training.generators import seed_torch
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed


def replay(
    config: RlConfig, inputs: Mapping[str, Path], rollouts: Path, context: StageContext
) -> str:
    """Learn again from stored rollouts, to the weights that they first led to, bit by bit.

    Which rollouts were learnt from, and in which step, stands in the table; credit, order and
    updates follow from it as they did then.

    Args:
        config: The run's own.
        inputs: The run's starting policy, and its reference where it had one.
        rollouts: ROLLOUTS of the run.
        context: With the run's seed and threads.

    Returns:
        Digest of the weights.

    Raises:
        UserError: The rollouts are not of a run with this config.

    """
    table = read_table(rollouts, ROLLOUTS)
    policy = load_policy(inputs["policy"], device=context.device)
    learner = build_learner(policy, config, context, reference=inputs.get("reference"))
    buffer = Buffer(epochs=config.updates.epochs, minibatches=config.updates.minibatches)
    for number, groups in stored_groups(table):
        if number > config.steps:
            raise UserError(
                f"{rollouts}: there are rollouts of step {number}, but the config has"
                f" {config.steps} steps; give the config of the run that made them"
            )
        step = number - 1
        seed_torch(purpose_seed(context.seed, "rl", step))
        trained = [group for group in groups if group[0].trained]
        samples = bearing_loss(learner.training_samples(trained, step=step))
        buffer.open(Generation(step, groups), samples)
        for index, update in enumerate(buffer.plan(seed=context.seed)):
            learner.update(update, step=step, index=index, seed=context.seed)
        context.progress(number, config.steps)
    learner.trainable.finish()
    learner.trainable.merge()
    return weights_digest(policy.model)
