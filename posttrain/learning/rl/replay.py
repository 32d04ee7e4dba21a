"""Retrain the learner from stored rollouts alone: no problems, no sampling, no rewards computed."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.data.schemas import ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.build import build_learner
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.generation import Generation, numbers_of_the_draw, with_limit
from posttrain.learning.rl.generations import Buffer, step_samples
from posttrain.learning.rl.loop import measure
from posttrain.learning.rl.rollout import learned_from
from posttrain.learning.rl.store import stored_groups
from posttrain.learning.training.generators import seed_torch
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.schedule import NumberSchedules
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    import polars as pl


def replay(
    config: RlConfig, inputs: Mapping[str, Path], rollouts: Path, context: StageContext
) -> str:
    """Learn again from stored rollouts, to the weights that they first led to, bit by bit.

    Which rollouts were learned from, and in which step, stands in the table; credit, order and
    updates follow from it as they did then.

    Args:
        config: The run's own.
        inputs: The run's starting policy, and its reference and stored episodes where it had any.
        rollouts: ROLLOUTS of the run.
        context: With the run's seed and threads.

    Returns:
        Digest of the weights.

    Raises:
        UserError: The rollouts are not of a run with this config.

    """
    table = read_table(rollouts, ROLLOUTS)
    policy = load_policy(inputs["policy"], device=context.device)
    config = with_limit(config, policy.model, note=context.note)
    learner = build_learner(
        policy,
        config,
        context,
        inputs=inputs,
    )
    buffer = Buffer(epochs=config.updates.epochs, minibatches=config.updates.minibatches)
    schedules, configs = NumberSchedules(config), dict[int, RlConfig]()
    last = _last_learned(config, table)
    for number, groups in stored_groups(table):
        if number > config.steps:
            raise UserError(
                f"{rollouts}: there are rollouts of step {number}, but the config has"
                f" {config.steps} steps; give the config of the run that made them"
            )
        if number > last:
            break
        step = number - 1
        configs[step] = schedules.at(step)
        drawn = configs[min(version for group in groups for r in group for version in r.versions)]
        generation = Generation(step, groups, numbers=numbers_of_the_draw(drawn))
        learner.passes.config = generation.drawn_with(configs[step])
        seed_torch(purpose_seed(context.seed, "rl", step))
        trained = learned_from(groups)
        _, samples = step_samples(learner, trained, step=step)
        buffer.open(generation, samples)
        for metrics in buffer.updates(learner, seed=context.seed):
            buffer.note(metrics)
        measured = measure(generation, buffer.totals, configs[step])
        follows = {config.reference.follows} - {None}
        _require_measured({*schedules.followed, *filter(None, follows)}, measured)
        schedules.observe(measured)
        reference = learner.passes.reference
        if reference is not None:
            reference.observe(
                measured, step=step, policy=learner.model, optimizer=learner.optimizer
            )
        context.progress(number, config.steps)
    learner.trainable.finish()
    learner.trainable.merge()
    return weights_digest(policy.model)


def _last_learned(config: RlConfig, table: "pl.DataFrame") -> int:
    """The last step that the saved policy has learned from.

    Behind it a run that stopped has what it drew ahead, or learned and took back. Nothing of that
    is marked as learned from, but a learner with stored episodes would recall some for it.
    """
    if config.stop is None:
        return config.steps
    return max(table.filter("trained")["step"].to_list(), default=0)


def _require_measured(followed: Collection[str], measured: Mapping[str, float]) -> None:
    """Refuse a number that follows what only sampling measures: the rollouts do not tell it."""
    for name in sorted(set(followed) - set(measured)):
        raise UserError(
            f"rl: a number follows {name}, which a replay of stored rollouts cannot measure"
            f"{nearest(name, measured)}; let it follow another metric, or the step"
        )
