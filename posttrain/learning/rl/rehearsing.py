"""Rehearsals at work: rows of tables that are learned from beside the rollouts of a step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from posttrain.learning.maths.reduce import aggregate
from posttrain.learning.models.load import Policy
from posttrain.learning.rl.balances.base import OWN_ROLLOUTS, BalanceAtWork
from posttrain.learning.rl.batch import TrainSample, collate, lengths_and_groups
from posttrain.learning.rl.passes import ModelPasses
from posttrain.learning.rl.rehearsals.base import Rehearsal, RehearsalStream
from posttrain.learning.rl.rehearsed_rows import read_rehearsed
from posttrain.learning.rl.rollout import Group
from posttrain.stage.errors import UserError
from posttrain.stage.schedule import at
from posttrain.stage.slots import name_of
from posttrain.stage.spec import under_port
from posttrain.stage.started import started

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.models.optim import Optimizer
    from posttrain.learning.training.prepare import Trainable

REHEARSED = "rehearsals"
"""The port that takes a table for each rehearsal, under its name."""


class Learns(Protocol):
    """The learner, as far as it is known here."""

    passes: ModelPasses
    optimizer: "Optimizer"
    num_updates: int

    @property
    def trainable(self) -> "Trainable":
        """The policy with what its training keeps beside it."""

    @property
    def model(self) -> "PreTrainedModel":
        """The policy."""


@dataclass
class Rehearsed:
    """One table at work."""

    samples: Sequence[TrainSample]
    """Its rows, each with the log-probabilities of the policy that RL began with."""
    stream: RehearsalStream


@dataclass
class Rehearsing:
    """All rehearsals of a run, and what weighs them."""

    tables: Mapping[str, Rehearsed]
    balance: BalanceAtWork | None
    seed: int
    _losses: dict[str, list[float]] = field(default_factory=dict, init=False)
    """Of the present step, by the name of the rehearsal."""

    def add_gradients(self, learner: Learns, *, step: int, index: int) -> dict[str, float]:
        """Add the gradients of the rehearsals that are terms of every update.

        Args:
            learner: Its model has the gradient of the rollouts already.
            step: 0-based step.
            index: 0-based update of the step.

        Returns:
            What was measured, by the names of the metrics.

        """
        if not index:
            self._losses = {}
        weights = {} if self.balance is None else self.balance.weights()
        if OWN_ROLLOUTS in weights:
            for parameter in learner.optimizer.parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(weights[OWN_ROLLOUTS])
        metrics = {f"balance_{name}": weight for name, weight in weights.items()}
        at = step * learner.passes.config.updates_per_step + index
        for name, part in learner.passes.config.updates.rehearsals.items():
            if not part.APART:
                metrics |= self._learned(
                    learner, name, part, at=(step, at), weight=weights.get(name, 1.0)
                )
        return metrics

    def close(self, learner: Learns, groups: Sequence[Group], *, step: int) -> dict[str, float]:
        """Make the updates that rehearsals make by themselves, once the rollouts are learned from.

        Args:
            learner: What learns.
            groups: All that was drawn for the step.
            step: 0-based step.

        Returns:
            What was measured, by the names of the metrics.

        """
        metrics: dict[str, float] = {}
        config = learner.passes.config
        for name, part in config.updates.rehearsals.items():
            self.tables[name].stream.observe(groups)
            if not part.APART:
                continue
            found = self._learned(learner, name, part, at=(step, step), weight=1.0)
            if found[f"rehearsal_{name}_rows"]:
                metrics |= _moved(learner, name, step=step)
            metrics |= found
        if self.balance is not None:
            solved = [r.solved for group in groups for r in group if r.solved is not None]
            failing = {OWN_ROLLOUTS: 1 - sum(solved) / len(solved)} if solved else {}
            means = {name: sum(each) / len(each) for name, each in self._losses.items()}
            self.balance.observe(failing | means)
        return metrics

    def _learned(
        self,
        learner: Learns,
        name: str,
        part: Rehearsal,
        *,
        at: tuple[int, int],
        weight: float,
    ) -> dict[str, float]:
        """Add the gradient of the rows that one rehearsal chooses."""
        table, (step, index) = self.tables[name], at
        places = list(table.stream.choose(part.rows, seed=self.seed, step=step, index=index))
        if set(places) - set(range(len(table.samples))):
            raise UserError(
                f"rl: {name_of(part)}: `choose` gave the places {places[:5]}, and the table has"
                f" {len(table.samples)} rows; let it give numbers of those, from 0"
            )
        metrics = {f"rehearsal_{name}_rows": float(len(places))}
        if not places:
            return metrics
        passes, chosen = learner.passes, [table.samples[place] for place in places]
        count, total = sum(sum(sample.drawn) for sample in chosen), 0.0
        for bucket in passes.buckets(*lengths_and_groups(chosen)):
            batch = collate([chosen[each] for each in bucket], pad=passes.pad, device=passes.device)
            logprobs_BT = passes.policy(
                learner.model, batch.input_ids_BT, batch.mask_BT
            ).logprobs_BT
            loss_BT = part.token_loss(logprobs_BT, batch.sampled_logprobs_BT)
            loss = aggregate(loss_BT, batch.mask_BT, aggregation="token_mean", denominator=count)
            (weight * part.coefficient * loss).backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        self._losses.setdefault(name, []).append(total)
        return metrics | {f"rehearsal_{name}": total}

    def state_dict(self) -> dict[str, Any]:
        """What the streams and the balance remember, and the losses of an open step."""
        return {
            "streams": {name: each.stream.state_dict() for name, each in self.tables.items()},
            "balance": {} if self.balance is None else self.balance.state_dict(),
            "losses": {name: list(each) for name, each in self._losses.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        for name, each in self.tables.items():
            each.stream.load_state_dict(state["streams"][name])
        if self.balance is not None:
            self.balance.load_state_dict(state["balance"])
        self._losses = {name: list(each) for name, each in state["losses"].items()}


def _moved(learner: Learns, name: str, *, step: int) -> dict[str, float]:
    """Make an update of its own by the gradient that a rehearsal has left, at the step's rate."""
    config, reference = learner.passes.config, learner.passes.reference
    optimization, per_step = config.optimization, config.updates_per_step
    factor = optimization.factor((step + 1) * per_step - 1, num_steps=config.steps * per_step)
    norm = learner.optimizer.step(
        learning_rate=factor * optimization.learning_rate, max_grad_norm=optimization.max_grad_norm
    )
    learner.num_updates += 1
    learner.trainable.after_step()
    if reference is not None:
        reference.follow(learner.model, num_updates=learner.num_updates)
    return {f"rehearsal_{name}_grad_norm": norm}


def build_rehearsing(
    policy: Policy, passes: ModelPasses, inputs: Mapping[str, Path], *, seed: int
) -> Rehearsing | None:
    """Read the tables that are rehearsed, and ask the policy as it is what it says of them.

    Args:
        policy: As RL begins with it.
        passes: Its forward passes, with the config of the run.
        inputs: Of the stage by port.
        seed: Of the run.

    Returns:
        What rehearses; None where nothing is.

    Raises:
        UserError: A table has no row that could be learned from.

    """
    updates = passes.config.updates
    if not updates.rehearsals:
        return None
    connected = under_port(REHEARSED, inputs)
    # Numbers that change are what they are in the first step: before it nothing is drawn.
    first = replace(passes, config=at(passes.config, 0, {}))
    tables = {}
    for name, part in updates.rehearsals.items():
        rows, samples = read_rehearsed(connected[name], part, policy)
        if not samples:
            raise UserError(
                f"rl.inputs.{REHEARSED}.{name}: no row of it is right, short enough and one that"
                f" {name_of(part)} takes; connect another table, or leave the rehearsal out"
            )
        begun = first.rows(samples, first.present_logprobs)
        known = [replace(each, logprobs=row) for each, row in zip(samples, begun, strict=True)]
        stream = started(part, part.start(rows), RehearsalStream, where="rl")
        tables[name] = Rehearsed(known, stream)
    balance = None
    if updates.balance is not None:
        terms = [name for name, part in updates.rehearsals.items() if not part.APART]
        work = updates.balance.start([OWN_ROLLOUTS, *terms])
        balance = started(updates.balance, work, BalanceAtWork, where="rl")
    return Rehearsing(tables, balance, seed)
