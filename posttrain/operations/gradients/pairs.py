"""The preference stage's gradients of two updates, and the same by a formula from its pairs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posttrain.data.rows import TokenBatch
from posttrain.learning.models.load import load_policy
from posttrain.learning.preference import objective
from posttrain.learning.preference.config import PairsConfig
from posttrain.learning.training.trainer import SupervisedTrainer
from posttrain.methods.formula import FormulaPairs
from posttrain.methods.lay import laid_over
from posttrain.operations.gradients.compare import (
    GradientErrors,
    SeenUpdate,
    apart,
    farthest,
    gradients_of,
    replaced,
    watched_stage,
    worst,
)
from posttrain.operations.stage_alone import run_alone
from posttrain.stage.spec import Task

PairFormula = Callable[[FormulaPairs], Tensor]

_SIZES: Mapping[str, Any] = {
    "steps": 2,
    "rounds": 1,
    # All pairs in every step, and one pass for them.
    "batch_tokens": 100_000,
    "micro_batch_tokens": 100_000,
    "pairs": {"limit": 16},
    "optimization": {"learning_rate": 0.02, "warmup_steps": 0},
    "sampling": {"problems": 20, "num_samples": 4, "max_tokens": 8, "temperature": 1.5},
}
"""Laid over what a method sets: two updates of all pairs."""

_OF_EPISODES: Mapping[str, Any] = {**_SIZES, "rounds": 0}
"""The same where pairs are of whole episodes or of steps, which no round draws."""


@dataclass
class SeenPairs(SeenUpdate):
    """One update on pairs: tokens of prompt and completion of each."""

    chosen: list[Tensor] = field(default_factory=list)
    rejected: list[Tensor] = field(default_factory=list)
    extra: list[Tensor] = field(default_factory=list)
    """What the method has beside them: a mismatched completion, the reference's sample."""
    label_prob: list[float] = field(default_factory=list)
    """How likely the chosen one of each pair is the better one."""
    gap: list[float] = field(default_factory=list)
    """By how much the chosen one was scored higher, where the loss reads that."""
    places: dict[tuple[int, ...], list[int]] = field(default_factory=dict)
    """Of a row: where what bears loss stands, its completion or all turns of an episode."""

    def take(self, part: Any) -> None:
        """Remember the rows of a micro-batch."""
        rows = self._unpadded(part.tokens)
        self.chosen += rows[: len(rows) // 2]
        self.rejected += rows[len(rows) // 2 :]
        facts = part.tokens.pairs
        self.label_prob += (
            [1.0] * (len(rows) // 2) if facts is None else facts.label_prob_B.tolist()
        )
        if facts is not None and facts.gap_B is not None:
            self.gap += facts.gap_B.tolist()
        if part.extra is not None:
            self.extra += self._unpadded(part.extra)

    @property
    def sides(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Chosen, rejected, and what is beside them."""
        return self.chosen, self.rejected, self.extra

    def logprobs(self, model: torch.nn.Module) -> list[list[Tensor]]:
        """Compute log-probabilities of every completion, by a plain forward pass for each row."""
        return [[self._completion(model, row) for row in side] for side in self.sides]

    def told(self, ids: tuple[int, ...]) -> tuple[str, list[int]]:
        """Name a row by the sides of pairs that it is on, with the ids of its completion."""
        sides = zip(("chosen", "rejected", "extra"), self.sides, strict=True)
        at = [
            f"{name} {place + 1}"
            for name, rows in sides
            for place, row in enumerate(rows)
            if tuple(row.tolist()) == ids
        ]
        return ", ".join(at), [ids[place] for place in self.places[ids]]

    def _completion(self, model: torch.nn.Module, row: Tensor) -> Tensor:
        places = self.places[tuple(row.tolist())]
        whole = model(input_ids=row[None]).logits[0].log_softmax(-1)
        found: Tensor = whole[[place - 1 for place in places], row[places]]
        return found

    def _unpadded(self, tokens: TokenBatch) -> list[Tensor]:
        rows = []
        for ids_T, wanted_T in zip(tokens.input_ids_BT, tokens.wanted_BT, strict=True):
            places = wanted_T.nonzero().flatten().tolist()
            row = ids_T[: places[-1] + 1]
            self.places[tuple(row.tolist())] = places
            rows.append(row)
        return rows


def pair_errors(
    formula: PairFormula,
    said: Mapping[str, Any],
    given: tuple[Task, Mapping[str, Path]],
    folder: Path,
    *,
    dtype: torch.dtype,
) -> GradientErrors:
    """Run the preference stage for two updates, and compare its gradients with a formula's.

    Args:
        formula: The loss of an update, by a paper.
        said: What a method sets of the section; sizes of its own are overruled.
        given: The stage, and its inputs: policy, problems and probed samples.
        folder: Where outputs go.
        dtype: Number format of the weights, and of all that is computed from them.

    Returns:
        The errors.

    """
    task, inputs = given
    updates = _drive(said, task, inputs, folder, dtype)
    initial = load_policy(inputs["policy"], dtype=torch.float64).model.eval()
    return worst(_update_errors(formula, update, initial, dtype) for update in updates)


def _drive(
    said: Mapping[str, Any],
    task: Task,
    inputs: Mapping[str, Path],
    folder: Path,
    dtype: torch.dtype,
) -> list[SeenPairs]:
    """Run the stage, and write down what each of its updates was."""
    found: list[SeenPairs] = []
    builder = PairsConfig.parse(dict(said.get("pairs") or {}), where="preference.pairs").builder
    drawn = said.get("turns", "last") == "last" and not builder.OF_STEPS
    sizes = _SIZES if drawn else _OF_EPISODES
    config = task.config.parse(laid_over(said, sizes), where="preference")
    with watched_stage(task, dtype) as run, _watched_trainer(found):
        run_alone(task, config, inputs, folder, seed=1, run=run)
    return found


@contextmanager
def _watched_trainer(found: list[SeenPairs]) -> Iterator[None]:
    """Write down every update that a trainer makes while the context is open."""
    backward, compute = SupervisedTrainer.backward, vars(objective)["batch_logprobs"]

    def recorded(
        self: SupervisedTrainer[Any], parts: Sequence[Any], optimizer: Any, **given: Any
    ) -> Any:
        update = SeenPairs()
        found.append(update)
        for part in parts:
            update.take(part)
        with update.around(self.trainable.model):
            return backward(self, parts, optimizer, **given)

    def watched(model: Any, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        logprobs_BT: Tensor
        logprobs_BT, mask_BT = compute(model, batch)
        if logprobs_BT.requires_grad:
            found[-1].saw(batch.input_ids_BT, mask_BT, logprobs_BT)
        return logprobs_BT, mask_BT

    with (
        replaced(SupervisedTrainer, "backward", recorded),
        replaced(objective, "batch_logprobs", watched),
    ):
        yield


def _update_errors(
    formula: PairFormula, update: SeenPairs, initial: torch.nn.Module, dtype: torch.dtype
) -> GradientErrors:
    model = update.policy(initial)
    now = update.logprobs(model)
    with torch.no_grad():
        before = update.logprobs(initial)
    weights, complaint = update.weights_apart(
        model, formula(FormulaPairs(*now, *before, label_prob=update.label_prob, gap=update.gap))
    )
    # One leaf for a row that stands on several sides: gradients add up, as they do in the stage.
    gradients: dict[tuple[int, ...], Tensor] = {}
    leaves: dict[tuple[int, ...], Tensor] = {}
    for ids, values_T, grad_T in update.rows():
        gradients[ids] = gradients[ids] + grad_T if ids in gradients else grad_T
        leaves[ids] = values_T.clone().requires_grad_()
    given = [
        [leaves.get(tuple(row.tolist()), known.detach()) for row, known in zip(*side, strict=True)]
        for side in zip(update.sides, now, strict=True)
    ]
    loss = formula(FormulaPairs(*given, *before, label_prob=update.label_prob, gap=update.gap))
    found = torch.cat([gradients[ids] for ids in leaves])
    expected = gradients_of(loss, leaves.values())
    where = farthest(found, expected, map(update.told, leaves))
    return GradientErrors(apart(found, expected), weights, dtype, complaint, where)
