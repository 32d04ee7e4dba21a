"""Retrain the learner from stored rollouts alone: no problems, no sampling, no rewards computed."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.data.schemas import ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import Policy, weights_digest
from posttrain.learning.rl.build import build_learner
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.generation import Config, with_limit
from posttrain.learning.rl.relearn import learn_from
from posttrain.learning.training.prepare import load_to_train
from posttrain.stage.context import StageContext

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
    table, policy, config = read_run(config, inputs, rollouts, context)
    learner = build_learner(
        policy,
        config,
        context,
        inputs=inputs,
    )
    learn_from(table, config, learner, context, of=str(rollouts))
    return weights_digest(policy.model)


def read_run(
    config: Config, inputs: Mapping[str, Path], rollouts: Path, context: StageContext
) -> tuple["pl.DataFrame", Policy, Config]:
    """Read what a run began with, and its rollouts.

    Args:
        config: The run's own.
        inputs: The run's starting policy among them.
        rollouts: ROLLOUTS of the run.
        context: With the run's device.

    Returns:
        The rollouts, the policy, and the config with its limit of tokens.

    """
    policy = load_to_train(inputs["policy"], config.learner, device=context.device)
    limited = with_limit(config, policy.model, note=context.note)
    return read_table(rollouts, ROLLOUTS), policy, limited
