"""What draws from each of several policies and what rewards it, opened for one run."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from posttrain.learning.curriculum.base import ProblemPool
from posttrain.learning.rl.member import Member
from posttrain.learning.rl.several_build import Learning
from posttrain.learning.rl.several_config import SeveralConfig
from posttrain.learning.rl.state import start_state
from posttrain.learning.rl.tools import open_tools
from posttrain.learning.rollouts.engines.kinds.torch import TorchEngine


@contextmanager
def open_members(
    learning: Sequence[Learning],
    config: SeveralConfig,
    pool: ProblemPool,
    inputs: Mapping[str, Path],
) -> Iterator[list[Member]]:
    """Open for each policy what draws from it and what rewards it.

    Args:
        learning: The policies.
        config: Of the stage.
        pool: The problems, and what is known of them.
        inputs: Of the stage by port; components of the reward ask some of them.

    Yields:
        The policies, ready for the first step.

    """
    members = []
    with ExitStack() as opened:
        for each in learning:
            tools = open_tools(
                TorchEngine(), config.reward, each.policy, each.learner, each.context, inputs=inputs
            )
            bench, ahead = opened.enter_context(tools)
            state = start_state(config, pool, each.learner, bench, ahead, each.context)
            members.append(Member(each.name, each.context.seed, state))
        yield members
