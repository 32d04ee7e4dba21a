"""The loop of several policies: draw and exchange, let each learn, remember everything."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from posttrain.learning.episodes.environments.base import POLICY
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.rl.exchanges.base import ExchangeRound, exchanged
from posttrain.learning.rl.generation import Generation
from posttrain.learning.rl.loop import KEPT, check_moved, gate, measure, measure_curriculum
from posttrain.learning.rl.member import Member
from posttrain.learning.rl.rollout import Group
from posttrain.learning.rl.several_config import SeveralConfig
from posttrain.learning.rl.store import merge_stores
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.generators import seed_torch
from posttrain.learning.training.progress import Progress, Stateful
from posttrain.stage.context import StageContext
from posttrain.stage.schedule import NumberSchedules
from posttrain.stage.seeds import purpose_seed

EXCHANGE = "rl/exchange_"
"""Before the names of what an exchange measures."""
_COUNTED = ("rollouts_drawn", "tokens_drawn", "rollouts_trained")
"""Metrics of which the policies' sum stands for the step; of all others it is their mean."""


@dataclass
class SeveralState:
    """Everything that takes part in a run of several policies, and changes while it goes on."""

    schedules: NumberSchedules[SeveralConfig]
    members: Sequence[Member]
    curve: Curve
    """Of the step as a whole, with that of each policy under `rl/NAME/`."""
    memory: dict[str, Any]
    """What the exchange remembers."""

    def parts(self) -> dict[str, Stateful]:
        """Return what a checkpoint holds, by name: of each policy, and of them together."""
        found: dict[str, Stateful] = {
            f"{member.name}-{name}": part
            for member in self.members
            for name, part in member.state.parts().items()
        }
        return found | {"curve": self.curve, "exchange": _Memory(self.memory)}

    def write_rollouts(self, path: Path) -> int:
        """Write the table of what all policies drew and read; returns the number of its rows."""
        stores = {member.name: member.state.store for member in self.members}
        return merge_stores(stores, path, learned=self.schedules.at(0).steps)


@dataclass(frozen=True)
class _Memory:
    """What an exchange remembers, as a part of the checkpoint."""

    values: dict[str, Any]

    def state_dict(self) -> dict[str, Any]:
        return dict(self.values)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.values.clear()
        self.values.update(state)


def train_together(
    state: SeveralState, *, context: StageContext, checkpointer: Checkpointer
) -> None:
    """Train several policies; goes on from a killed attempt, after the last step that it kept.

    Everything random in a step follows from the seed and the step, so a step that is run again
    after a kill is the same step.

    Args:
        state: Everything that takes part, before its first step.
        context: Seed, scratch folder and channels of the stage.
        checkpointer: Writes and finds checkpoints.

    """
    with closing(checkpointer):
        _take_steps(state, context, checkpointer)


def _take_steps(state: SeveralState, context: StageContext, checkpointer: Checkpointer) -> None:
    progress, members = Progress(state.parts(), checkpointer), state.members
    on_host = state.schedules.at(0).optimization.offload
    first = progress.restore("cpu" if on_host else context.device)
    if first:
        context.note(f"resuming after step {first}")
    else:
        for member in members:
            member.state.store.load_state_dict({})
    config = state.schedules.at(0)
    steps, saved = config.steps, first
    heed = partial(state.curve.heed, config.alarms, stage="rl", steps=steps, kept=KEPT)

    def save(step: int) -> None:
        nonlocal saved
        if step == saved:
            return
        for member in members:
            member.state.store.flush(step)
        progress.save(step)
        saved = step

    heed(first)
    for step in range(first, steps):
        config = state.schedules.at(step)
        made, measured = _exchange(state, config, step=step, seed=context.seed)
        named = [
            learn_step(member, generation, config)
            for member, generation in zip(members, made, strict=True)
        ]
        state.curve.log(step + 1, measured | of_all(members, named))
        context.progress(step + 1, steps)
        checkpointer.raise_failed()
        if config.checkpoint_every and (step + 1) % config.steps_between_checkpoints == 0:
            save(step + 1)
        heed(step + 1, save=save)


def _exchange(
    state: SeveralState, config: SeveralConfig, *, step: int, seed: int
) -> tuple[list[Generation], dict[str, float]]:
    """What each policy learns from, and what the exchange measured."""
    for member in state.members:
        member.begin(step, config)
    at = ExchangeRound(step, config, purpose_seed(seed, "exchange", step), state.memory)
    made = exchanged(config.exchange, state.members, at)
    return numbered(made), {EXCHANGE + name: value for name, value in at.measured.items()}


def numbered(made: Sequence[Generation]) -> list[Generation]:
    """Number the groups of all policies of a step through, so that no two have one number.

    Args:
        made: A generation for each policy.

    Returns:
        The same ones.

    """
    found, begin = [], 0
    for generation in made:
        groups = [
            [row._replace(group=number) for row in group]
            for number, group in enumerate(generation.groups, start=begin)
        ]
        begin += len(groups)
        found.append(replace(generation, groups=groups))
    return found


def learn_step(member: Member, generation: Generation, config: SeveralConfig) -> dict[str, float]:
    """Let a policy learn from what an exchange gave it.

    Args:
        member: The policy.
        generation: All that is its in the step.
        config: The numbers of the step.

    Returns:
        What the step measured of it, by the names in `rl.metrics`.

    """
    state = member.state
    learner, buffer = state.learner, state.buffer
    learner.passes.config = config
    seed_torch(purpose_seed(member.seed, "rl", generation.step))
    buffer.take(generation, learner, config)
    weights = learner.fingerprint()
    for metrics in buffer.updates(learner, seed=member.seed):
        if buffer.num_done == 0:
            gate(learner, metrics, stale=buffer.is_stale)
        weights = check_moved(learner, weights, gradient=metrics["grad_norm"])
        buffer.note(metrics)
    totals, learned = buffer.totals, buffer.close()
    wrote = [[row for row in group if row.origin == POLICY] for group in learned.groups]
    own = [group for group in wrote if group]
    state.rollouter.observe(_as_asked(own, member.name), step=generation.step)
    named = measure(learned, totals, config) | measure_curriculum(state, config)
    state.store.add(learned.groups, step=generation.step + 1)
    return named | drawn_by(own)


def _as_asked(groups: Sequence[Group], name: str) -> list[Group]:
    """What became of the problems as they are, for the sampler that drew them.

    An answer to more than the problem, such as one behind another policy's, says nothing of it.
    """
    asked = [[row for row in group if row.role == name] for group in groups]
    return [[row._replace(role=POLICY) for row in group] for group in asked if group]


def drawn_by(groups: Sequence[Group]) -> dict[str, float]:
    """Count what a policy drew itself, which others' rollouts are no part of."""
    rows = [row for group in groups for row in group]
    return {
        "rl/rollouts_drawn": float(len(rows)),
        "rl/tokens_drawn": float(sum(row.num_new for row in rows)),
    }


def of_all(members: Sequence[Member], named: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Name what a step measured of all policies: as a whole, and of each.

    Args:
        members: The policies.
        named: What was measured of each.

    Returns:
        Counts are summed, all else is the mean over the policies of which it was measured; that of
        one policy stands under `rl/NAME/`.

    """
    found: dict[str, float] = {}
    for name in dict.fromkeys(key for each in named for key in each):
        values = [each[name] for each in named if name in each]
        counted = name.removeprefix("rl/") in _COUNTED
        found[name] = sum(values) if counted else fmean(values)
    for member, each in zip(members, named, strict=True):
        found |= {f"rl/{member.name}/{n.removeprefix('rl/')}": v for n, v in each.items()}
    return found
