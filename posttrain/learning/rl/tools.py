"""What draws from the policy and what rewards, opened for one run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from posttrain.learning.episodes.players.base import PORT as PLAYERS
from posttrain.learning.models.load import Policy
from posttrain.learning.rewards.config import RewardStack
from posttrain.learning.rewards.port_models import PortModels
from posttrain.learning.rl.ahead import Ahead, drawing_ahead
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.producers.base import Workbench
from posttrain.learning.rl.rewarder import Rewarder, SharedRewarder
from posttrain.learning.rollouts.engines.config import open_under
from posttrain.learning.rollouts.engines.engine import Engine
from posttrain.learning.rollouts.scoring import verifying
from posttrain.stage.context import StageContext
from posttrain.stage.spec import under_port


@contextmanager
def open_tools(
    engine: Engine,
    reward: RewardStack,
    policy: Policy,
    learner: PolicyLearner,
    context: StageContext,
    *,
    inputs: Mapping[str, Path] | None = None,
) -> Iterator[tuple[Workbench, Ahead | None]]:
    """Open the engine, the verifiers, and what draws ahead, for as long as the context lasts.

    Args:
        engine: What samples.
        reward: What answers earn.
        policy: What is sampled from: as the learner left it, its precision and its adapters.
        learner: One of several where the stage has several processes.
        context: Of the stage; it says whether a cluster samples and verifies.
        inputs: Of the stage by port; components of the reward ask some of them.

    Yields:
        What draws from the policy and what rewards, and what makes rollouts while the learner
        works, where the config asks for such.

    """
    asked = context.device, under_port(PLAYERS, inputs or {}), inputs or {}
    count, mask = learner.passes.config.ahead, learner.passes.mask
    models = PortModels(inputs or {}, context.device, policy.tokenizer)
    if context.processes > 1:
        from posttrain.learning.rl.sharded import ShardedPolicyLearner
        from posttrain.learning.rl.shared_drawing import shared_tools

        assert isinstance(learner, ShardedPolicyLearner)
        with shared_tools(engine, policy, learner, context) as (opened, verify):
            shared = SharedRewarder(reward, verify, models, group=learner.group)
            bench = Workbench(opened, shared, policy.tokenizer, None, *asked)
            yield bench, None
    else:
        with (
            open_under(
                None if mask is None else mask.at, engine, policy, ray=context.ray
            ) as opened,
            verifying(context.ray) as verify,
        ):
            rewarder = Rewarder(reward, verify, models)
            bench = Workbench(opened, rewarder, policy.tokenizer, policy, *asked)
            with drawing_ahead(count, engine, learner.passes, bench, context) as ahead:
                yield bench, ahead
