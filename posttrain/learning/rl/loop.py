"""The RL loop: sample ahead, learn in updates, remember everything."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.rl.advantages import bearing_loss, with_advantages
from posttrain.learning.rl.batch import TrainSample
from posttrain.learning.rl.buffer import Buffer, Generation, Queue
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.drawing import Drawing
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.metrics import CURRICULUM, describe
from posttrain.learning.rl.rollout import Group, marked
from posttrain.learning.rl.stop import Stopping
from posttrain.learning.rl.store import RolloutStore
from posttrain.learning.training.best_weights import BestWeights
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.generators import seed_torch
from posttrain.learning.training.progress import Progress, Stateful
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed


@dataclass(frozen=True)
class Practice:
    """Everything that takes part in a run, and changes while it goes on."""

    drawing: Drawing
    learner: PolicyLearner
    curve: Curve
    store: RolloutStore
    queue: Queue
    buffer: Buffer
    stopping: Stopping | None
    best: BestWeights | None = None
    progress: Callable[[Mapping[str, Stateful], Checkpointer], Progress] = Progress

    @property
    def num_steps(self) -> int:
        """Steps that were learnt from."""
        return self.queue.num_drawn - len(self.queue.waiting)

    def observe(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Let the stopping rule see what 0-based `step` measured."""
        if self.stopping is None:
            return
        self.stopping.observe(metrics)
        if self.best is not None and self.stopping.improved:
            # A step's rollouts are of the policy that it starts from.
            self.best.keep(step)

    def parts(self) -> dict[str, Stateful]:
        """What a checkpoint holds, by name; of the rollouts, which lie beside it, the digests."""
        learner = self.learner
        optional: Mapping[str, Stateful | None] = {
            "reference": learner.passes.reference,
            "critic": learner.passes.critic,
            "stopping": self.stopping,
            "best": self.best,
        }
        return {
            **learner.trainable.parts(),
            "optimizer": learner.optimizer,
            "learner": learner,
            "curriculum": self.drawing.stream,
            "reward": self.drawing.rewarder,
            "queue": self.queue,
            "buffer": self.buffer,
            "curve": self.curve,
            "rollouts": self.store,
            **{name: part for name, part in optional.items() if part is not None},
        }


def train(
    practice: Practice, *, config: RlConfig, context: StageContext, checkpointer: Checkpointer
) -> None:
    """Train the policy in place; goes on from a killed attempt, also from between two updates.

    Everything random in a step follows from the seed and the step, so a step that is run again
    after a kill is the same step. With a staleness, generations are sampled that many steps before
    they are learnt from, by the policy of then: what a sampler beside the learner would do, in one
    process and in one order.

    Args:
        practice: Everything with a state: learner, drawing, buffer, queue, store.
        config: Steps, updates, staleness, checkpoints.
        context: Of the stage: seed, progress, notes.
        checkpointer: Writes and finds checkpoints.

    """
    queue, buffer, learner = practice.queue, practice.buffer, practice.learner
    saving = _Saving(practice.progress(practice.parts(), checkpointer), practice.store, config)
    first = saving.restore(context)
    weights = learner.fingerprint()
    for step in range(first, config.steps):
        if practice.stopping is not None and practice.stopping.reason:
            context.note(f"stopped after step {step} of {config.steps}: {practice.stopping.reason}")
            break
        started = time.perf_counter()
        if buffer.generation is None:
            # Else a checkpoint between two updates brought the generators' states with it.
            seed_torch(purpose_seed(context.seed, "rl", step))
            if practice.best is not None:
                practice.best.mark()
        while queue.num_drawn <= min(step + config.staleness, config.steps - 1):
            queue.put(draw(practice, queue.num_drawn, version=step))
        if buffer.generation is None:
            generation = drop_stale(queue.take(), version=step, bound=config.staleness)
            trained = [group for group in generation.groups if group[0].trained]
            earned = learner.training_samples(trained, step=step)
            samples = bearing_loss(earned)
            if step == 0:
                check_taught(trained, samples, max_tokens=config.max_tokens)
            num_masked = sum(map(len, trained)) - sum(map(len, samples))
            if num_masked:
                generation.facts["rollouts_masked"] = float(num_masked)
            # Only now everything is known of a group that a problem sampler may ask.
            practice.drawing.observe(generation.groups)
            groups = with_advantages(generation.groups, earned)
            buffer.open(replace(generation, groups=groups), samples)

        sampled = time.perf_counter()
        plan = buffer.plan(seed=context.seed)
        for index in range(buffer.num_done, len(plan)):
            metrics = learner.update(plan[index], step=step, index=index, seed=context.seed)
            if index == 0:
                gate(practice, metrics, stale=is_stale(buffer, version=step))
            weights = check_moved(learner, weights, gradient=metrics["grad_norm"])
            buffer.learnt(metrics)
            if index + 1 < len(plan):
                saving.save_if_due(step, index + 1)

        measured = means(buffer.totals)
        generation = buffer.close()
        measured = figures(practice, generation, version=step) | measured
        named = {f"rl/{name}": value for name, value in measured.items()}
        sampler = practice.drawing.stream.metrics()
        named |= {CURRICULUM + name: value for name, value in sampler.items()}
        practice.curve.log(step + 1, named)
        practice.store.add(generation.groups, step=step + 1)
        practice.observe(named, step=step)

        # Wall-clock goes to the tracker only: it must not reach an artifact.
        seconds = {"rl/seconds_sampling": sampled - started}
        context.log(step + 1, seconds | {"rl/seconds_learning": time.perf_counter() - sampled})
        context.progress(step + 1, config.steps)
        saving.save_if_due(step + 1, 0)


def draw(practice: Practice, step: int, *, version: int) -> Generation:
    """Sample for `step`; where it will wait, hold the sampler against the trainer at once."""
    generation = practice.drawing.draw(step, version=version)
    if step > version:
        gap = practice.learner.gap(generation.groups[0])
        practice.learner.check_gap(gap["logprob_gap"])
        generation.facts |= gap
    return generation


def gate(practice: Practice, metrics: dict[str, float], *, stale: bool) -> None:
    """Stop where sampler and trainer disagree; of stale rollouts the distance is another thing."""
    if not stale:
        practice.learner.check_gap(metrics["logprob_gap"])
        return
    for name in ("", "_max", "_k3"):
        metrics[f"drift{name}"] = metrics.pop(f"logprob_gap{name}")


def is_stale(buffer: Buffer, *, version: int) -> bool:
    """Whether any rollout that is learnt from is of an older policy."""
    return any(sample.policy_version != version for group in buffer.samples for sample in group)


def drop_stale(generation: Generation, *, version: int, bound: int) -> Generation:
    """Take groups with a rollout older than the bound out of what is learnt from."""

    def kept(group: Group) -> Group:
        if version - min(rollout.policy_version for rollout in group) <= bound:
            return group
        return marked(group, trained=False)

    groups = [kept(group) for group in generation.groups]
    num_stale = sum(
        len(new)
        for old, new in zip(generation.groups, groups, strict=True)
        if old[0].trained and not new[0].trained
    )
    facts = generation.facts | {"rollouts_stale": float(num_stale)}
    return replace(generation, groups=groups, facts=facts)


def figures(practice: Practice, generation: Generation, *, version: int) -> dict[str, float]:
    """What is measured of a generation itself."""
    signal = practice.drawing.informative(generation.groups)
    ages = [version - r.policy_version for g in generation.groups for r in g if r.trained]
    found = describe(generation.groups, signal=signal) | generation.facts
    return found | {"staleness": sum(ages) / len(ages)} if ages else found


def means(totals: Mapping[str, list[float]]) -> dict[str, float]:
    """Mean of every metric over the updates that measured it."""
    return {name: math.fsum(values) / len(values) for name, values in totals.items()}


def check_taught(
    trained: Sequence[Group], samples: Sequence[Sequence[TrainSample]], *, max_tokens: int
) -> None:
    """Refuse, before the first update, a limit of tokens that cuts off and so masks everything."""
    if trained and not samples and all(r.truncated for group in trained for r in group):
        raise UserError(
            f"rl: every rollout of the first step was cut off at max_tokens {max_tokens}, and"
            " algorithm.advantage.truncated masks those, so no token bears loss; raise max_tokens,"
            " or set truncated to keep"
        )


def check_moved(learner: PolicyLearner, before: object, *, gradient: float) -> object:
    """The fingerprint after an update; one with a gradient that left it as it was ends the run."""
    after = learner.fingerprint()
    if gradient and after == before:
        raise UserError(
            f"rl: update {learner.num_updates} left the policy exactly as it was, though it had a"
            " gradient, so it would learn nothing; raise the learning rate, or train in float32"
        )
    return after


@dataclass
class _Saving:
    """Checkpoints by optimiser update: 0-based step and update as one number."""

    progress: Progress
    store: RolloutStore
    config: RlConfig
    last: int = 0

    def restore(self, context: StageContext) -> int:
        """Take up the newest checkpoint, if there is one; returns the steps that are done."""
        self.last = self.progress.restore(context.device)
        step, update = divmod(self.last, self.config.updates_per_step)
        if self.last:
            within = f" and {update} updates" if update else ""
            context.note(f"resuming after step {step} of {self.config.steps}{within}")
        else:
            self.store.load_state_dict({})
        return step

    def save_if_due(self, step: int, update: int) -> None:
        """Write a checkpoint where `checkpoint_every` updates have gone by."""
        every, now = self.config.checkpoint_every, step * self.config.updates_per_step + update
        if every and now // every > self.last // every:
            self.store.flush(step)
            self.progress.save(now)
            self.last = now
