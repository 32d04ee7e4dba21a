"""A learner that learns again from the rollouts of a run, to the weights that they first led to."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.generation import Generation, numbers_of_the_draw
from posttrain.learning.rl.generations import Buffer, step_samples
from posttrain.learning.rl.learner import PolicyLearner, observe_step
from posttrain.learning.rl.loop import measure
from posttrain.learning.rl.store import stored_groups
from posttrain.learning.training.generators import seed_torch
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.schedule import NumberSchedules
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    import polars as pl


def learn_from(
    table: "pl.DataFrame",
    config: RlConfig,
    learner: PolicyLearner,
    context: StageContext,
    *,
    of: str,
    after_step: Callable[[int], None] = lambda _step: None,
) -> None:
    """Let a learner learn again from stored rollouts, and finish its policy.

    Args:
        table: ROLLOUTS of the run that it learned from.
        config: The run's own, with its limit of tokens.
        learner: As the run began with it.
        context: With its seed.
        of: Where the rollouts are, for errors.
        after_step: Hears the number of every step that was learned from, from 1, and may look at
            the policy as it is then.

    Raises:
        UserError: The rollouts are not of a run with this config.

    """
    buffer = Buffer(epochs=config.updates.epochs, minibatches=config.updates.minibatches)
    schedules, configs = NumberSchedules(config), dict[int, RlConfig]()
    last = _last_learned(config, table)
    for number, groups in stored_groups(table):
        if number > config.steps:
            raise UserError(
                f"{of}: there are rollouts of step {number}, but the config has"
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
        _, samples = step_samples(learner, groups, step=step)
        buffer.open(generation, samples)
        for metrics in buffer.updates(learner, seed=context.seed):
            buffer.note(metrics)
        measured = measure(generation, buffer.totals, configs[step])
        follows = {config.reference.follows} - {None}
        _require_measured({*schedules.followed, *filter(None, follows)}, measured)
        schedules.observe(measured)
        observe_step(learner, measured, step=step)
        context.progress(number, config.steps)
        after_step(number)
    learner.trainable.finish()
    learner.trainable.merge()


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
