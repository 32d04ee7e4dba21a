"""What draws from the policy and what rewards, opened for one run."""

from collections.abc import Iterator
from contextlib import contextmanager

from posttrain.learning.models.load import Policy
from posttrain.learning.rewards.config import RewardStack
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.producers.base import Workbench
from posttrain.learning.rl.rollout import Rewarder
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.engines.engine import Engine
from posttrain.learning.rollouts.scoring import verifying
from posttrain.stage.context import StageContext


@contextmanager
def open_workbench(
    engine: Engine,
    reward: RewardStack,
    policy: Policy,
    learner: PolicyLearner,
    context: StageContext,
) -> Iterator[Workbench]:
    """Open the engine and the verifiers, for as long as the context lasts.

    Args:
        engine: What samples.
        reward: What answers earn.
        policy: What is sampled from: as the learner left it, its precision and its adapters.
        learner: One of several where the stage has several processes.
        context: Of the stage; it says whether a cluster samples and verifies.

    Yields:
        What draws from the policy, and what rewards.

    """
    if context.processes > 1:
        from posttrain.learning.rl.shared_drawing import shared_tools

        with shared_tools(engine, policy, learner, context) as (opened, verify):
            yield Workbench(opened, Rewarder(reward, verify), policy.tokenizer)
    else:
        with (
            open_engine(engine, policy, ray=context.ray) as opened,
            verifying(context.ray) as verify,
        ):
            yield Workbench(opened, Rewarder(reward, verify), policy.tokenizer)
