"""Rollouts for several learners: each draws some of them, or the main one has actors do it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from posttrain.learning.models.context import context_length
from posttrain.learning.models.load import Policy
from posttrain.learning.rewards.verify import VerifierCache
from posttrain.learning.rl.sharded import ShardedPolicyLearner
from posttrain.learning.rollouts.engines.base import Prompt, RolloutEngine, Sample, SamplingParams
from posttrain.learning.rollouts.engines.batches import cut, in_order
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.engines.engine import Engine, refuse_crowded
from posttrain.learning.rollouts.scoring import verifying
from posttrain.stage.context import StageContext

_BATCH_SIZE = 512


@contextmanager
def shared_tools(
    engine: Engine, policy: Policy, learner: ShardedPolicyLearner, context: StageContext
) -> Iterator[tuple[RolloutEngine, VerifierCache]]:
    """Open what draws, with the same results in every process, and what verifies in the main one.

    Args:
        engine: The recipe's choice of what draws.
        policy: What it draws from.
        learner: This process's part of the learner.
        context: Says whether actors of a cluster draw.

    Yields:
        The engine, and what scores answers by their problems' verifiers where it is asked.

    Raises:
        UserError: The engine needs a process of its own beside each of several.

    """
    if context.ray is not None and not learner.group.is_main:
        yield SharedEngine(None, policy, learner), VerifierCache()
        return
    refuse_crowded(engine, context.processes, on_ray=context.ray is not None, where="rl")
    with (
        open_engine(engine, policy, batch_size=_BATCH_SIZE, ray=context.ray) as opened,
        verifying(context.ray) as verify,
    ):
        if context.ray is None:
            drawing: RolloutEngine = DividedEngine(opened, learner)
        else:
            drawing = SharedEngine(opened, policy, learner)
        yield drawing, verify


@dataclass(frozen=True)
class DividedEngine:
    """An engine in every process; the batches of one process are shared out among them."""

    engine: RolloutEngine
    learner: ShardedPolicyLearner

    @property
    def context_length(self) -> int:
        """Return the number of positions that the model knows."""
        return self.engine.context_length

    def update(self, policy_version: int) -> None:
        """Hand every engine the present weights; later samples carry this version."""
        self.learner.lend()
        self.engine.update(policy_version)

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Sample]:
        """Draw this process's share, and gather all; see `RolloutEngine.sample`."""
        group = self.learner.group
        pieces = cut(prompts, params, batch_size=_BATCH_SIZE, at_least=group.size)
        own = {
            number: self.engine.sample([prompts[index] for index in pieces[number]], params)
            for number in range(group.rank, len(pieces), group.size)
        }
        drawn: dict[int, list[Sample]] = {}
        for found in group.from_all(own):
            drawn |= found
        return in_order(pieces, [drawn[number] for number in range(len(pieces))], params)


@dataclass(frozen=True)
class SharedEngine:
    """The main process's engine draws for all; the others have none."""

    engine: RolloutEngine | None
    policy: Policy
    learner: ShardedPolicyLearner

    @property
    def context_length(self) -> int:
        """Return the number of positions that the model knows."""
        return context_length(self.policy.model.config)

    def update(self, policy_version: int) -> None:
        """Hand the engine the present weights; later samples carry this version."""
        self.learner.lend_to_main()
        if self.engine is not None:
            self.engine.update(policy_version)

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Sample]:
        """Draw in the main process, and send it to the others; see `RolloutEngine.sample`."""
        drawn = self.engine.sample(prompts, params) if self.engine is not None else None
        samples: list[Sample] = self.learner.group.from_main(drawn)
        return samples
