"""Retrain several policies from their stored rollouts alone, which `posttrain replay` asks for."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from posttrain.learning.models.load import weights_digest
from posttrain.learning.rl.member import FIRST
from posttrain.learning.rl.relearn import learn_from
from posttrain.learning.rl.replay import read_run
from posttrain.learning.rl.several_build import build_policies
from posttrain.stage.context import StageContext
from tasks.coevolve.config import SeveralConfig


def replay_each(
    config: SeveralConfig, inputs: Mapping[str, Path], rollouts: Path, context: StageContext
) -> dict[str, str]:
    """Learn again from stored rollouts, to the weights of each policy, bit by bit.

    Args:
        config: The run's own.
        inputs: The policies that the run started from, and its reference where it had any.
        rollouts: ROLLOUTS of the run.
        context: With the run's seed and threads.

    Returns:
        Digest of the weights, by the name of the policy.

    """
    table, first, limited = read_run(config, inputs, rollouts, context)
    learner_of = pl.col("role").str.split(":").list.last()
    found: dict[str, str] = {}
    for each in build_policies(first, limited, inputs, context):
        rows = table.filter(learner_of == each.name)
        learn_from(rows, limited, each.learner, each.context, of=str(rollouts))
        each.learner.finish()
        each.learner.trainable.merge()
        found[each.name] = weights_digest(each.policy.model)
    return found


def replay(
    config: SeveralConfig, inputs: Mapping[str, Path], rollouts: Path, context: StageContext
) -> str:
    """Learn again from stored rollouts, all policies, and tell the first one's weights.

    Args:
        config: The run's own.
        inputs: The policies that the run started from, and its reference where it had any.
        rollouts: ROLLOUTS of the run.
        context: With the run's seed and threads.

    Returns:
        Digest of the weights of the policy that the stage handed on.

    """
    return replay_each(config, inputs, rollouts, context)[FIRST]
