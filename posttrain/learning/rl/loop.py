"""The RL loop: sample ahead, learn in updates, remember everything."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.generation import Generation
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.metrics import (
    CURRICULUM,
    INSTRUCTIONS,
    SECONDS,
    alarms,
    describe,
    of_selection,
)
from posttrain.learning.rl.rollout_batch import informative_groups
from posttrain.learning.rl.state import RlState
from posttrain.learning.rl.store import RolloutStore
from posttrain.learning.training.generators import seed_torch
from posttrain.learning.training.progress import Progress
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.part_checks import check_declared
from posttrain.stage.seeds import purpose_seed
from posttrain.stage.slots import name_of

KEPT = "rollouts and a checkpoint"
"""What lies in the scratch folder of a run that an alarm stopped."""


def train(state: RlState, *, context: StageContext, checkpointer: Checkpointer) -> None:
    """Train the policy in place; goes on from a killed attempt, also from between two updates.

    Everything random in a step follows from the seed and the step, so a step that is run again
    after a kill is the same step. With a staleness, generations are sampled that many steps before
    they are learned from, by the policy of then: in between, or with `ahead` by other processes
    while the learner works, to the same bits. What they are drawn with is the config of the step
    that draws.

    Args:
        state: Everything that takes part, before its first step.
        context: Seed, scratch folder and channels of the stage.
        checkpointer: Writes and finds checkpoints; all are on disk at the end.

    """
    with closing(checkpointer):
        _take_steps(state, context, checkpointer)


def _take_steps(state: RlState, context: StageContext, checkpointer: Checkpointer) -> None:
    queue, buffer, learner = state.queue, state.buffer, state.learner
    saving = _Saving(
        state.progress(state.parts(), checkpointer), state.store, state.schedules.at(0)
    )
    saving.check(state)
    first = saving.restore(context)
    heed = partial(state.curve.heed, saving.config.alarms, stage="rl", kept=KEPT)
    heed(first, steps=saving.config.steps)
    weights = learner.fingerprint()
    for step in range(first, saving.config.steps):
        config = state.schedules.at(step)
        if state.stopping is not None and state.stopping.reason:
            context.note(f"stopped after step {step} of {config.steps}: {state.stopping.reason}")
            break
        started = time.perf_counter()
        if buffer.generation is None:
            # Else a checkpoint between two updates brought the generators' states with it.
            seed_torch(purpose_seed(context.seed, "rl", step))
            if state.best is not None:
                state.best.mark()
        learner.passes.config = config
        queue.fill(state.rollouter, learner, config, step=step)
        if buffer.generation is None:
            buffer.take(queue.oldest(state.rollouter, learner), learner, config)
        assert buffer.generation is not None
        learner.passes.config = buffer.generation.drawn_with(config)

        sampled = time.perf_counter()
        for metrics in buffer.updates(learner, seed=context.seed):
            if buffer.num_done == 0:
                gate(learner, metrics, stale=buffer.is_stale)
            weights = check_moved(learner, weights, gradient=metrics["grad_norm"])
            buffer.note(metrics)
            if buffer.num_done < buffer.num_planned:
                saving.save_if_due(state, step, buffer.num_done)

        totals, generation = buffer.totals, buffer.close()
        # Only now everything is known of a group that a problem sampler may ask.
        state.rollouter.observe(generation.groups, step=generation.step)
        named = measure(generation, totals, config)
        named |= measure_curriculum(state, config)
        named |= state.schedules.metrics(step)
        if step == first:
            note_unmeasured(state, config, named, context)
        state.curve.log(step + 1, named)
        for told in alarms(config.reward, state.curve, step=step + 1):
            context.note(told)
        state.store.add(generation.groups, step=step + 1)
        state.observe(named, step=step)

        # Wall-clock goes to the tracker only: it must not reach an artifact.
        seconds = (sampled - started, time.perf_counter() - sampled)
        clock = dict(zip(("sampling", "learning"), seconds, strict=True)) | queue.seconds()
        context.log(step + 1, {f"{SECONDS}{name}": value for name, value in clock.items()})
        context.progress(step + 1, config.steps)
        saving.save_if_due(state, step + 1, 0)
        heed(step + 1, steps=config.steps, save=partial(saving.save, state))
    queue.settle(state.rollouter, learner)


def gate(learner: PolicyLearner, metrics: dict[str, float], *, stale: bool) -> None:
    """Stop where engine and trainer disagree; of stale rollouts the gap is the policy's drift.

    Args:
        learner: Knows how far the log-probabilities may lie apart.
        metrics: Of the update; where `stale`, its ``logprob_gap`` figures are renamed ``drift`` in
            place.
        stale: True where older weights drew the rollouts than the update starts from.

    """
    if not stale:
        learner.check_gap(metrics["logprob_gap"])
        return
    for name in ("", "_max", "_k3"):
        metrics[f"drift{name}"] = metrics.pop(f"logprob_gap{name}")


def check_moved(learner: PolicyLearner, before: object, *, gradient: float) -> object:
    """Take the fingerprint after an update, which must have moved the policy.

    Args:
        learner: Whose weights were updated.
        before: The fingerprint before it.
        gradient: Norm of the update's gradient.

    Returns:
        The fingerprint now.

    Raises:
        UserError: There was a gradient, and the weights are exactly as they were.

    """
    after = learner.fingerprint()
    # In bfloat16 a small update is rounded away: metrics would look as if it learned.
    if gradient and after == before:
        raise UserError(
            f"rl: update {learner.num_updates} left the policy exactly as it was, though it had a"
            " gradient, so it would learn nothing; raise the learning rate, or train in float32"
        )
    return after


@dataclass
class _Saving:
    """Checkpoints by optimizer update: 0-based step and update as one number."""

    progress: Progress
    store: RolloutStore
    config: RlConfig
    last: int = 0

    def check(self, state: RlState) -> None:
        """Refuse, before the first step, a part whose state no checkpoint could hold."""
        owners, parts = state.owners(), self.progress.parts
        checkpointer = self.progress.checkpointer
        checkpointer.owners = owners
        if self.config.checkpoint_every:
            checkpointer.check({name: parts[name].state_dict() for name in owners})

    def restore(self, context: StageContext) -> int:
        """Take up the newest checkpoint, if there is one; returns the steps that are done."""
        # Moments that lie in the host's memory would not fit beside the model even for a moment.
        on_host = self.config.optimization.offload
        self.last = self.progress.restore("cpu" if on_host else context.device)
        step, update = divmod(self.last, self.config.updates_per_step)
        if self.last:
            within = f" and {update} updates" if update else ""
            context.note(f"resuming after step {step} of {self.config.steps}{within}")
        else:
            self.store.load_state_dict({})
        return step

    def save_if_due(self, state: RlState, step: int, update: int) -> None:
        """Write a checkpoint where `checkpoint_every` updates have gone by; see `Progress`."""
        self.progress.checkpointer.raise_failed()
        every, now = self.config.checkpoint_every, self._updates(step, update)
        if every and now // every > self.last // every:
            self.save(state, step, update)

    def save(self, state: RlState, step: int, update: int = 0) -> None:
        """Write a checkpoint, unless this very state has one."""
        now = self._updates(step, update)
        if now == self.last:
            return
        # First, as it is rewarded then, and a reward may remember.
        state.queue.settle(state.rollouter, state.learner)
        self.store.flush(step)
        self.progress.save(now)
        self.last = now

    def _updates(self, step: int, update: int) -> int:
        return step * self.config.updates_per_step + update


def measure_curriculum(state: RlState, config: RlConfig) -> dict[str, float]:
    """Ask the problem sampler, and the instructor where there is one, what they measure.

    Args:
        state: Of the run; its streams answer.
        config: Of the step; names the parts.

    Returns:
        Value by full name, such as those under ``rl/curriculum_``.

    Raises:
        UserError: One measures what its METRICS does not declare.

    """
    sampler, found = config.draw.sampler, state.rollouter.stream.metrics()
    check_declared(found, sampler.metrics, part=name_of(sampler))
    named = {CURRICULUM + name: value for name, value in found.items()}
    instructor, instructed = config.draw.instructions, state.rollouter.instructed
    if instructor is None or instructed is None:
        return named
    found = instructed.stream.metrics()
    check_declared(found, instructor.METRICS, part=name_of(instructor))
    return named | {INSTRUCTIONS + name: value for name, value in found.items()}


def note_unmeasured(
    state: RlState, config: RlConfig, measured: Mapping[str, float], context: StageContext
) -> None:
    """Say which metrics are followed, and were declared by a part that did not measure them.

    Args:
        state: Of the run; knows which metrics are followed.
        config: Says which part declares which metric.
        measured: The metrics of the first step.
        context: Of the stage; takes the notes.

    """
    for name in sorted((state.followed & config.part_metrics.keys()) - measured.keys()):
        context.note(
            f"{config.part_metrics[name]} did not measure {name}, which its METRICS declares; what"
            " follows it stays as it begins until a step does"
        )


def measure(
    generation: Generation, totals: Mapping[str, Sequence[float]], config: RlConfig
) -> dict[str, float]:
    """Compute the metrics of a step, by the names in `rl.metrics`.

    Args:
        generation: What was learned from, with all that was drawn for it.
        totals: What each update measured, by name.
        config: The numbers of the step.

    Returns:
        Figures of the rollouts, and the mean of every metric over the updates that measured it.

    """
    groups = generation.own
    informative = informative_groups(
        groups, config.algorithm_at_work.advantage, by=config.reward.filter
    )
    ages = [generation.step - r.policy_version for g in generation.groups for r in g if r.trained]
    found = describe(groups, informative=informative) | generation.facts
    found |= of_selection(config.draw.select, generation.groups)
    if ages:
        found["staleness"] = sum(ages) / len(ages)
    found |= {name: math.fsum(values) / len(values) for name, values in totals.items()}
    return {f"rl/{name}": value for name, value in found.items()}
