"""Who takes the steps of supervised training: this process alone, or together with others."""

import math
from collections.abc import Mapping, Sequence
from typing import Generic

import torch
from torch import Tensor

from posttrain.data.batching import AnyBatch
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.memory import check_training_memory
from posttrain.learning.models.optim import NotFiniteError, Optimizer, build_optimizer
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.progress import Progress, Stateful
from posttrain.learning.training.supervised_objective import SupervisedObjective
from posttrain.stage.context import StageContext


class SupervisedTrainer(Generic[AnyBatch]):
    """One process alone; `posttrain.learning.training.sharded` has the one of several."""

    def __init__(
        self, trainable: Trainable, objective: SupervisedObjective[AnyBatch], context: StageContext
    ) -> None:
        self.trainable = trainable
        if trainable.router is not None:
            from posttrain.learning.training.router_loss import balanced

            objective = balanced(objective, trainable.router)
        self.objective = objective
        self.device = context.device

    def optimizer(self, config: OptimizationConfig) -> Optimizer:
        """The optimizer of the weights that are trained."""
        optimizer = build_optimizer(
            self.trainable.model,
            kind=config.optimizer,
            weight_decay=config.weight_decay,
        )
        check_training_memory(optimizer, device=self.device)
        return optimizer

    def progress(self, parts: Mapping[str, Stateful], checkpointer: Checkpointer) -> Progress:
        """Say what a checkpoint holds: the weights, and these parts.

        Args:
            parts: Everything else with a state, by name.
            checkpointer: Writes and finds the files.

        Returns:
            What saves and restores them together.

        """
        return Progress(self.trainable.parts() | dict(parts), checkpointer)

    def weights(self) -> torch.nn.Module:
        """Something with the state dict of the whole model."""
        model: torch.nn.Module = self.trainable.model
        return model

    def micro_batches(self, step: int) -> list[AnyBatch]:
        """All parts of 0-based `step`."""
        return self.objective.parts(self.trainable.model, step, self.device)

    def backward(self, parts: Sequence[AnyBatch], *, where: str) -> dict[str, float]:
        """Accumulate the gradient of one step.

        Args:
            parts: Its micro-batches.
            where: Stage and step, for the message.

        Returns:
            The loss and its metrics, over all units of the step.

        """
        num_units = sum(part.num_units for part in parts)
        totals: dict[str, float] = {}
        for part in parts:
            with self.trainable.computing():
                value, metrics = self.objective.loss(self.trainable.model, part, float(num_units))
            scalar = float(value.detach())
            check_finite(scalar, where=where)
            value.backward()  # type: ignore[no-untyped-call]
            add_up(totals, scalar, metrics, share=(part.num_units, num_units))
        return totals

    def heldout_loss(self) -> float:
        """The loss on all held-out batches, per unit, in evaluation mode."""
        if self.objective.heldout is None:
            raise ValueError("this objective holds nothing out")
        total, num_units = 0.0, 0.0
        self.trainable.model.eval()
        with torch.no_grad(), self.trainable.computing():
            for index in range(len(self.objective.heldout.steps)):
                for part in self.objective.heldout.micro_batches(index):
                    value = self.heldout_value(part.to(self.device))
                    total, num_units = total + value, num_units + part.num_units
        self.trainable.model.train()
        return total / num_units

    def heldout_value(self, part: AnyBatch) -> float:
        """The summed loss on one held-out batch."""
        value, _ = self.objective.loss(self.trainable.model, part, 1.0)
        return float(value)

    def finish(self) -> None:
        """Make the model what is to be saved."""
        self.trainable.finish()


def check_finite(loss: float, *, where: str) -> None:
    """Stop training at a loss that is not a number.

    Args:
        loss: Of a micro-batch, or a step.
        where: Stage and step, for the message.

    Raises:
        NotFiniteError: It is infinite or not a number.

    """
    if not math.isfinite(loss):
        raise NotFiniteError(
            f"{where}: the loss is {loss}, so training stopped; "
            "lower the learning rate or look for a broken row in the data"
        )


def add_up(
    totals: dict[str, float],
    loss: float,
    metrics: Mapping[str, Tensor],
    *,
    share: tuple[float, float],
) -> None:
    """Add a micro-batch's loss, and its metrics by its share of the step.

    Args:
        totals: Changed in place; the loss under ``loss``.
        loss: Divided by the step's denominator already.
        metrics: Means over the micro-batch's units.
        share: Units of the micro-batch, and of the whole step.

    """
    num_units, all_units = share
    totals["loss"] = totals.get("loss", 0.0) + loss
    for name, metric in metrics.items():
        totals[name] = totals.get(name, 0.0) + float(metric) * num_units / all_units
