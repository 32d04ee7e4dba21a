"""The RL stage's gradients of two updates, and the same by a formula from the stored rollouts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posttrain.data.schemas import ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.rl import learner as learning
from posttrain.learning.rl.batch import TrainBatch, TrainSample
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.turn_learner import TurnLearner
from posttrain.methods.formula import FormulaRollouts, TurnWorths
from posttrain.methods.lay import laid_over
from posttrain.operations.gradients.compare import (
    RATIO,
    GradientErrors,
    SeenUpdate,
    apart,
    earlier,
    farthest,
    gradients_of,
    replaced,
    scoring_model,
    watched_stage,
    worst,
)
from posttrain.operations.stage_alone import run_alone
from posttrain.operations.tiny_world import playing
from posttrain.stage.spec import Task

RolloutFormula = Callable[[FormulaRollouts], Tensor]

_SIZES: Mapping[str, Any] = {
    "steps": 1,
    "problems_per_step": 12,
    "group_size": 4,
    "max_tokens": 8,
    "temperature": 1.3,
    # One pass for all: what it says of the tokens is one tensor.
    "optimization": {"optimizer": "adamw", "learning_rate": 0.02, "warmup_steps": 0},
    "updates": {"minibatches": 2, "epochs": 1, "micro_batch_tokens": 100_000},
    "checkpoint_every": 0,
}
"""Laid over what a method sets: two updates of one step, the second at ratios other than 1."""

_TWO_STEPS: Mapping[str, Any] = {"steps": 2, "updates": {"minibatches": 1}}
"""The same where the loss has no ratio."""

_MORE: Mapping[str, Any] = {"problems_per_step": 36}
"""Laid over that where a method leaves so much out that nothing moved before the last update."""


@dataclass
class SeenRollouts(SeenUpdate):
    """One update of RL."""

    step: int = 0
    """From 1."""
    learner: int = 0
    """Which one it is of, of several in one stage."""
    groups: frozenset[int] = frozenset()
    """Whose rollouts it learned from, of those of the step."""
    drawn: list[tuple[int, ...]] = field(default_factory=list)
    """The samples' tokens, prompt and answer, in their order."""
    values: list[tuple[float, ...]] = field(default_factory=list)
    """Of the critic before the first update, one per drawn token, in the order of `drawn`."""
    readings: dict[tuple[int, ...], TurnWorths] = field(default_factory=dict)
    """Of the critic of turns, by the tokens of an episode, where there is one."""


@dataclass
class SeenRl:
    """What a run of the stage left behind."""

    config: RlConfig
    initial: torch.nn.Module
    reference: torch.nn.Module
    """The one that is connected, else the policy that it started from; both in float64."""
    rollouts: list[dict[str, Any]]
    """Rows of its ROLLOUTS that were trained on."""
    updates: list[SeenRollouts]
    dtype: torch.dtype

    def errors(self, formula: RolloutFormula) -> GradientErrors:
        """Hold the gradients of every update against a formula's."""
        found = worst(_update_errors(formula, self, update) for update in self.updates)
        if self.config.algorithm.surrogate.HAS_RATIO and self._farthest_ratio() < RATIO:
            return GradientErrors(
                found.tokens, found.weights, found.dtype, "no ratio is other than 1"
            )
        return found

    def _farthest_ratio(self) -> float:
        """The largest ratio of the last update to what sampled."""
        update = self.updates[-1]
        with torch.no_grad():
            now = self.logprobs(update.policy(self.initial), self.rollouts)
        return max(
            float((new - torch.tensor(row["logprobs"]))[earlier(row) :].exp().max())
            for new, row in zip(now, self.rollouts, strict=True)
            if row["step"] == update.step and row["group"] in update.groups
        )

    def logprobs(self, model: torch.nn.Module, rows: Sequence[Mapping[str, Any]]) -> list[Tensor]:
        """Compute log-probabilities of the drawn tokens, by a plain forward pass for each row.

        Args:
            model: The policy.
            rows: Of ROLLOUTS.

        Returns:
            A tensor for each row.

        """
        return of_drawn(rows, self.distributions(model, rows))

    def distributions(
        self, model: torch.nn.Module, rows: Sequence[Mapping[str, Any]]
    ) -> list[Tensor]:
        """Compute log-probabilities of the whole vocabulary where tokens were drawn.

        Args:
            model: The policy.
            rows: Of ROLLOUTS.

        Returns:
            ``[T, V]`` for each row.

        """
        found = []
        for row in rows:
            ids = torch.tensor(row["token_ids"])
            logits = model(input_ids=ids[None]).logits[0] / self.config.temperature
            found.append(logits.log_softmax(-1)[[place - 1 for place in _places(row)]])
        return found


def of_drawn(rows: Sequence[Mapping[str, Any]], whole: Sequence[Tensor]) -> list[Tensor]:
    """Take the log-probabilities of the drawn tokens out of those of all tokens.

    Args:
        rows: Of ROLLOUTS.
        whole: ``[T, V]`` for each row.

    Returns:
        ``[T]`` for each row.

    """
    found = []
    for row, log_all in zip(rows, whole, strict=True):
        drawn = torch.tensor([row["token_ids"][place] for place in _places(row)])
        found.append(log_all.gather(1, drawn[:, None])[:, 0])
    return found


def _places(row: Mapping[str, Any]) -> list[int]:
    """Where the drawn tokens of a row stand."""
    spans = [span for span in row["spans"] if span["drawn"]]
    return [place for span in spans for place in range(span["begin"], span["end"])]


def rl_errors(
    formula: RolloutFormula,
    said: Mapping[str, Any],
    given: tuple[Task, Mapping[str, Path]],
    folder: Path,
    *,
    dtype: torch.dtype,
) -> GradientErrors:
    """Run the RL stage for two updates, and compare its gradients with a formula's.

    Args:
        formula: The loss of an update, by a paper.
        said: What a method sets of the section; sizes of its own are overruled.
        given: The stage, and its inputs: policy and problems.
        folder: Where outputs go.
        dtype: Number format of the weights, and of all that is computed from them.

    Returns:
        The errors.

    """
    errors = drive_rl(said, *given, folder, dtype=dtype).errors(formula)
    if errors.complaint:
        errors = drive_rl(said, *given, folder, dtype=dtype, more=_MORE).errors(formula)
    return errors


def drive_rl(
    said: Mapping[str, Any],
    task: Task,
    inputs: Mapping[str, Path],
    folder: Path,
    *,
    dtype: torch.dtype,
    more: Mapping[str, Any] | None = None,
) -> SeenRl:
    """Run the RL stage for two updates, and write down what each of them was.

    Args:
        said: What a method sets of the section; sizes of its own are overruled.
        task: The stage.
        inputs: Policy and problems.
        folder: Where outputs go.
        dtype: Number format of the weights, and of all that is computed from them.
        more: Sizes that differ from those of all methods.

    Returns:
        Inputs, weights and gradients of each update.

    """
    sizes = laid_over(_SIZES, more or {})
    parsed = _parsed(task, said)
    if not parsed.algorithm.surrogate.HAS_RATIO:
        sizes = laid_over(sizes, _TWO_STEPS)
    if parsed.producer.carried:
        sizes = laid_over(sizes, {"steps": 1 + parsed.producer.carried})
    config = _parsed(task, playing(laid_over(said, sizes)))
    found: list[SeenRollouts] = []
    with watched_stage(task, dtype) as run, _watched_learner(found):
        outputs = run_alone(task, config, inputs, folder, seed=1, run=run)
    rows = read_table(outputs["rollouts"], ROLLOUTS).filter("trained")
    initial = scoring_model(inputs["policy"])
    reference = scoring_model(inputs.get("reference", inputs["policy"]))
    return SeenRl(config, initial, reference, rows.to_dicts(), found, dtype)


def _parsed(task: Task, values: Mapping[str, Any]) -> RlConfig:
    config = task.config.parse(values, where="rl")
    assert isinstance(config, RlConfig)
    return config


@contextmanager
def _watched_learner(found: list[SeenRollouts]) -> Iterator[None]:
    """Write down every update that a learner makes while the context is open."""
    update, accumulate = PolicyLearner.update, PolicyLearner.accumulate
    advantages = TurnLearner.advantages
    readings: dict[tuple[int, ...], TurnWorths] = {}

    def asked(self: TurnLearner, wholes: Sequence[Any], config: RlConfig) -> Any:
        readings.update(_worths(self, wholes, config))
        return advantages(self, wholes, config)

    objective = vars(learning)["policy_objective"]

    def updating(self: PolicyLearner, samples: Sequence[TrainSample], **given: Any) -> Any:
        groups = frozenset(sample.group for sample in samples)
        drawn = [sample.token_ids for sample in samples]
        values = [sample.values for sample in samples]
        found.append(
            SeenRollouts(
                step=given["step"] + 1,
                learner=id(self),
                groups=groups,
                drawn=drawn,
                values=values,
                readings=dict(readings),
            )
        )
        return update(self, samples, **given)

    def accumulating(self: PolicyLearner, parts: Sequence[TrainBatch], **given: Any) -> Any:
        with found[-1].around(self.model):
            return accumulate(self, parts, **given)

    def losing(algorithm: Algorithm, logprobs_BT: Tensor, **given: Any) -> Any:
        found[-1].saw(given["batch"].input_ids_BT, given["batch"].mask_BT, logprobs_BT)
        return objective(algorithm, logprobs_BT, **given)

    with (
        replaced(TurnLearner, "advantages", asked),
        replaced(PolicyLearner, "update", updating),
        replaced(PolicyLearner, "accumulate", accumulating),
        replaced(learning, "policy_objective", losing),
    ):
        yield


def _update_errors(formula: RolloutFormula, run: SeenRl, update: SeenRollouts) -> GradientErrors:
    model = update.policy(run.initial)
    stored = _rows_of(run, update)
    log_all = run.distributions(model, stored)
    log_p = of_drawn(stored, log_all)
    rows = _formula_rows(run, update, stored, log_p, log_all)
    weights, complaint = update.weights_apart(model, formula(rows))
    # Of the log-probabilities: at the very numbers that the stage computed.
    # Rows of equal tokens may be paid differently, of two groups for example: they share a leaf.
    # Of equal tokens more may have been read and fewer drawn: behind a longer hint.
    seen: dict[tuple[tuple[int, ...], int], tuple[Tensor, Tensor]] = {}
    for ids, values_T, grad_T in update.rows():
        name = (ids, len(values_T))
        leaf, so_far = seen.get(name, (values_T.clone().requires_grad_(), 0.0 * grad_T))
        seen[name] = leaf, so_far + grad_T
    names = [(tuple(row["token_ids"]), len(row["logprobs"]) - earlier(row)) for row in stored]
    bearing = {names[place] for place in rows.chosen}
    leaves = [
        torch.cat([each.detach()[: len(each) - name[1]], seen[name][0]])
        if place in rows.chosen and name in seen
        else each.detach()
        for place, (name, each) in enumerate(zip(names, log_p, strict=True))
    ]
    # What a loss has of the other tokens reaches the weights by itself, and not by these.
    fixed = [each.detach() for each in log_all]
    loss = formula(_formula_rows(run, update, stored, leaves, fixed))
    looked_at = [each for name, each in seen.items() if name in bearing]
    expected = gradients_of(loss, (leaf for leaf, _ in looked_at))
    found = torch.cat([gradient for _, gradient in looked_at])
    told = dict(zip(names, map(_told, stored), strict=True))
    where = farthest(found, expected, [told[name] for name in seen if name in bearing])
    return GradientErrors(apart(found, expected), weights, run.dtype, complaint, where)


def _told(row: Mapping[str, Any]) -> tuple[str, list[int]]:
    """What a stored rollout is called, and the ids of its drawn tokens."""
    name = f"step {row['step']}, group {row['group']}, a rollout of {row['problem_id']}"
    return name, [row["token_ids"][place] for place in _places(row)[earlier(row) :]]


def _worths(
    learner: TurnLearner, wholes: Sequence[Any], config: RlConfig
) -> Iterator[tuple[tuple[int, ...], TurnWorths]]:
    """What a critic of turns says of some episodes, by their tokens."""
    for places, batch in learner.batches(wholes, 0, config):
        with torch.no_grad():
            read, target = learner.critic.read(batch)
        for row, place in enumerate(places):
            num_turns = len(wholes[place].drawn_by_turn)
            said, begun, said_behind, begun_behind = (
                each[row, :num_turns].tolist()
                for each in (read.said_BKH, read.begun_BKH, target.said_BKH, target.begun_BKH)
            )
            worths = TurnWorths(said, begun, said_behind, begun_behind)
            yield wholes[place].token_ids, worths


def _rows_of(run: SeenRl, update: SeenRollouts) -> list[dict[str, Any]]:
    """The rows of its step, or those that were recalled for it, in the order of its samples."""
    if min(update.groups) >= 0:
        of_others = {
            group
            for each in run.updates
            if each.step == update.step and each.learner != update.learner
            for group in each.groups
        }
        of_step = [row for row in run.rollouts if row["step"] == update.step]
        return [row for row in of_step if row["group"] not in of_others]
    rows = {tuple(row["token_ids"]): row for row in run.rollouts}
    return [rows[ids] for ids in update.drawn]


def _formula_rows(
    run: SeenRl,
    update: SeenRollouts,
    stored: Sequence[Mapping[str, Any]],
    log_p: list[Tensor],
    log_all: list[Tensor],
) -> FormulaRollouts:
    """What a paper's formula is given: the stored rollouts, and passes of this file's own."""
    of_step = [
        each for each in run.updates if each.step == update.step and each.learner == update.learner
    ]
    with torch.no_grad():
        all_before = run.distributions(of_step[0].policy(run.initial), stored)
        all_by_reference = run.distributions(run.reference, stored)
    values: dict[tuple[int, ...], tuple[float, ...]] = {}
    for each in of_step:
        values |= dict(zip(each.drawn, each.values, strict=True))
    return FormulaRollouts(
        log_p=log_p,
        log_old=of_drawn(stored, all_before),
        log_all=log_all,
        log_all_old=all_before,
        log_engine=[torch.tensor(row["logprobs"]).double() for row in stored],
        log_ref=of_drawn(stored, all_by_reference),
        log_all_ref=all_by_reference,
        reward=[row["reward"] for row in stored],
        group=[row["group"] for row in stored],
        chosen=[
            place
            for place, row in enumerate(stored)
            if row["group"] in update.groups or min(update.groups) < 0
        ],
        values=[torch.tensor(values.get(tuple(row["token_ids"]), ())).double() for row in stored],
        limit=run.config.longest or 0,
        stored=stored,
        worths=[update.readings.get(tuple(row["token_ids"]), TurnWorths()) for row in stored],
        vocabulary=[each.detach().mean(-1) for each in log_all],
        vocabulary_old=[each.mean(-1) for each in all_before],
    )
