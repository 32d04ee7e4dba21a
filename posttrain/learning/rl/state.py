"""Everything that takes part in an RL run, put together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from posttrain.learning.curriculum.base import ProblemPool
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.rl.ahead import Ahead
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.generations import Buffer, Queue
from posttrain.learning.rl.learner import PolicyLearner, observe_step
from posttrain.learning.rl.producers.base import Workbench
from posttrain.learning.rl.rollouter import Rollouter, start_rollouter
from posttrain.learning.rl.stop import Stopping
from posttrain.learning.rl.store import RolloutStore
from posttrain.learning.training.best_weights import BestWeights
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.progress import Progress, Stateful
from posttrain.stage.context import StageContext
from posttrain.stage.schedule import NumberSchedules, ScheduledNumber


@dataclass(frozen=True)
class RlState:
    """Everything that takes part in a run, and changes while it goes on."""

    schedules: NumberSchedules[RlConfig]
    rollouter: Rollouter
    learner: PolicyLearner
    curve: Curve
    store: RolloutStore
    queue: Queue
    buffer: Buffer
    stopping: Stopping | None = None
    best: BestWeights | None = None
    progress: Callable[[Mapping[str, Stateful], Checkpointer], Progress] = Progress

    @property
    def num_steps(self) -> int:
        """Steps that were learned from."""
        return self.queue.num_drawn - self.queue.num_ahead

    @property
    def followed(self) -> frozenset[str]:
        """Names of the metrics that numbers of the run follow, or rules of it."""
        rules = {self.schedules.at(0).reference.follows} - {None}
        rules |= {self.stopping.metric} if self.stopping else set()
        return self.schedules.followed | frozenset(name for name in rules if name)

    def observe(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Let schedules, what follows the policy and the stopping rule see what a step measured.

        Args:
            metrics: Value by full name.
            step: Counted from 0.

        """
        self.schedules.observe(metrics)
        observe_step(self.learner, metrics, step=step)
        if self.stopping is None:
            return
        self.stopping.observe(metrics)
        if self.best is not None and self.stopping.improved:
            # A step's rollouts are of the policy that it starts from.
            self.best.keep(step)

    def owners(self) -> dict[str, str]:
        """Name the parts that give states of their own, by the names of `parts`, for errors."""
        return self.schedules.at(0).owners

    def parts(self) -> dict[str, Stateful]:
        """Return what a checkpoint holds, by name.

        Of the rollouts, which lie beside it, it holds the digests.
        """
        passes = self.learner.passes
        optional: Mapping[str, Stateful | None] = {
            "reference": passes.reference,
            "action_mask": passes.mask,
            "critic": passes.critic,
            "turn_values": passes.turn_learner,
            "rehearsals": self.learner.beside.rehearsing,
            "replay": self.learner.beside.replaying,
            "stopping": self.stopping,
            "best": self.best,
            "instructions": self.rollouter.instructed,
            # Numbers that go by the step alone have no state.
            "schedules": self.schedules if self.schedules.followed else None,
        }
        return {
            **self.learner.trainable.parts(),
            "optimizer": self.learner.optimizer,
            "learner": self.learner,
            "curriculum": self.rollouter.stream,
            "producer": self.rollouter.production,
            "reward": self.rollouter.bench.rewarder,
            "queue": self.queue,
            "buffer": self.buffer,
            "curve": self.curve,
            "rollouts": self.store,
            **{name: part for name, part in optional.items() if part is not None},
        }


def start_state(
    config: RlConfig,
    pool: ProblemPool,
    learner: PolicyLearner,
    bench: Workbench,
    ahead: Ahead | None,
    context: StageContext,
    *,
    inputs: Mapping[str, Path] | None = None,
) -> RlState:
    """Put a run together, as it is before its first step.

    Args:
        config: Parameters of the run; its numbers may be schedules.
        pool: The problems, and what is known of them.
        learner: The policy and what learns with it.
        bench: What draws from the policy, and what rewards.
        ahead: Other processes that make rollouts while the learner works; None leaves it to it.
        context: Seed, scratch folder and channels of the stage.
        inputs: Of the stage by port; parts that draw ask some of them.

    Returns:
        Everything of the run that has a state.

    Raises:
        UserError: The problem sampler cannot begin from this pool.

    """
    return RlState(
        schedules=NumberSchedules(config),
        rollouter=start_rollouter(
            config, pool, bench, context, count=_most(config.problems_per_step), inputs=inputs
        ),
        learner=learner,
        curve=Curve(context),
        store=RolloutStore(context.scratch),
        queue=Queue(ahead),
        buffer=Buffer(epochs=config.updates.epochs, minibatches=config.updates.minibatches),
        stopping=None if config.stop is None else Stopping(config.stop),
        best=BestWeights(learner.trainable) if config.stop and config.stop.keep == "best" else None,
        progress=learner.progress,
    )


def _most(count: int | ScheduledNumber) -> int:
    """The largest value that a count takes in the run."""
    if isinstance(count, ScheduledNumber):
        return round(max(count.start, count.end))
    return count
