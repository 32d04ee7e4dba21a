"""Rehearsals at work: rows of tables that are learned from beside the rollouts of a step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from posttrain.data.contexts import prompts_of
from posttrain.data.rows import TokenRow, encode_rows
from posttrain.data.schemas import COMPLETIONS
from posttrain.data.tables import read_table
from posttrain.learning.maths.reduce import aggregate
from posttrain.learning.models.load import Policy
from posttrain.learning.rl.balances.base import ROLLOUTS, BalanceAtWork
from posttrain.learning.rl.batch import TrainSample, collate, lengths_and_groups
from posttrain.learning.rl.passes import ModelPasses
from posttrain.learning.rl.rehearsals.base import Rehearsal, RehearsalRow, RehearsalStream
from posttrain.learning.rl.rollout import Group
from posttrain.learning.training.lengths import room_of
from posttrain.stage.errors import UserError
from posttrain.stage.slots import name_of
from posttrain.stage.spec import under_port
from posttrain.stage.started import started

if TYPE_CHECKING:
    from posttrain.learning.rl.learner import PolicyLearner

PORT = "rehearsals"
"""The port that takes a table for each rehearsal, under its name."""


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

    def add_gradients(self, learner: "PolicyLearner", *, step: int, index: int) -> dict[str, float]:
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
        if ROLLOUTS in weights:
            for parameter in learner.optimizer.parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(weights[ROLLOUTS])
        metrics = {f"balance_{name}": weight for name, weight in weights.items()}
        at = step * learner.passes.config.updates_per_step + index
        for name, part in learner.passes.config.updates.rehearsals.items():
            if not part.APART:
                metrics |= self._learned(
                    learner, name, part, at=(step, at), weight=weights.get(name, 1.0)
                )
        return metrics

    def close(
        self, learner: "PolicyLearner", groups: Sequence[Group], *, step: int
    ) -> dict[str, float]:
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
            failing = {ROLLOUTS: 1 - sum(solved) / len(solved)} if solved else {}
            means = {name: sum(each) / len(each) for name, each in self._losses.items()}
            self.balance.observe(failing | means)
        return metrics

    def _learned(
        self,
        learner: "PolicyLearner",
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


def _moved(learner: "PolicyLearner", name: str, *, step: int) -> dict[str, float]:
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
    connected = under_port(PORT, inputs)
    tables = {}
    for name, part in updates.rehearsals.items():
        rows, samples = _read(connected[name], part, policy)
        if not samples:
            raise UserError(
                f"rl.inputs.{PORT}.{name}: none of its rows is right, short enough and one that"
                f" {name_of(part)} takes; connect another table, or leave the rehearsal out"
            )
        begun = passes.rows(samples, passes.present_logprobs)
        known = [replace(each, logprobs=row) for each, row in zip(samples, begun, strict=True)]
        stream = started(part, part.start(rows), RehearsalStream, where="rl")
        tables[name] = Rehearsed(known, stream)
    balance = None
    if updates.balance is not None:
        terms = [name for name, part in updates.rehearsals.items() if not part.APART]
        work = updates.balance.start([ROLLOUTS, *terms])
        balance = started(updates.balance, work, BalanceAtWork, where="rl")
    return Rehearsing(tables, balance, seed)


def _read(
    path: Path, part: Rehearsal, policy: Policy
) -> tuple[list[RehearsalRow], list[TrainSample]]:
    """The rows of a table that a rehearsal may read."""
    table = read_table(path, COMPLETIONS)
    rate = pl.col("verified").cast(pl.Float64).mean().over("problem_id").fill_null(1.0)
    table = table.with_columns(rate.alias("solve_rate"))
    table = table.filter(pl.col("verified").fill_null(value=True))
    told = [RehearsalRow(*row) for row in table.select("problem_id", "solve_rate").iter_rows()]
    encoded = encode_rows(
        policy.tokenizer,
        prompts_of(table),
        table["text"].to_list(),
        allow_empty=True,
        turns="assistant",
    )
    room, samples = room_of(policy.model), [_sample(row) for row in encoded]
    kept = [
        (row, sample)
        for row, sample in zip(told, samples, strict=True)
        if sample.num_tokens <= room and part.admits(row)
    ]
    return [row for row, _ in kept], [sample for _, sample in kept]


def _sample(row: TokenRow) -> TrainSample:
    """A row without anything that is known of it."""
    silent = {place for begin, end in row.silent for place in range(begin, end)}
    drawn = tuple(at >= row.start and at not in silent for at in range(len(row.ids)))
    return TrainSample(
        token_ids=tuple(row.ids),
        drawn=drawn,
        logprobs=(0.0,) * sum(drawn),
        policy_version=0,
        advantages=(0.0,),
    )
