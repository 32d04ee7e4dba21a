"""Several processes train on rows too long for one: each computes a share of the tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from posttrain.data.batching import AnyBatch
from posttrain.data.rows import TokenBatch, TokenRow, TokenTable, position_ids
from posttrain.learning.models.distributed.context import across_processes
from posttrain.learning.models.logprobs import wanted_logprobs
from posttrain.learning.models.optim import Optimizer
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.sharded import ShardedSupervisedTrainer
from posttrain.learning.training.supervised_objective import SupervisedObjective
from posttrain.learning.training.trainer import add_up, check_finite
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_TOLERANCE = 1e-3
"""In nats; of single precision the rest is 1e-5."""


def open_shared_trainer(
    trainable: Trainable, objective: SupervisedObjective[AnyBatch], context: StageContext
) -> ShardedSupervisedTrainer[AnyBatch]:
    """Choose what several processes share: the micro-batches of a step, or the tokens of each.

    Args:
        trainable: The whole model, with its adapter and average.
        objective: The batches of every step, and the loss of one.
        context: Of the stage.

    Returns:
        The trainer of this process.

    """
    shares_tokens = trainable.config.context_parallel
    kind = ContextParallelTrainer if shares_tokens else ShardedSupervisedTrainer
    return kind(trainable, objective, context)


class ContextParallelTrainer(ShardedSupervisedTrainer[AnyBatch]):
    """One of several processes, all of which take every micro-batch, and some tokens of each."""

    def __init__(
        self, trainable: Trainable, objective: SupervisedObjective[AnyBatch], context: StageContext
    ) -> None:
        super().__init__(trainable, objective, context)
        self._check()

    @torch.no_grad()
    def _check(self) -> None:
        """Refuse a model whose tokens are others when they are computed together."""
        model = self.trainable.model
        if model.get_output_embeddings() is None:
            raise UserError(
                "learner.context_parallel puts log-probabilities together, and"
                f" {type(model).__name__} gives scores; leave it out"
            )
        config = model.config.get_text_config()
        if "chunked_attention" in (getattr(config, "layer_types", None) or ()):
            raise UserError(
                "learner.context_parallel knows windows of attention, and"
                f" {type(model).__name__} attends in chunks; leave it out"
            )
        count = config.vocab_size
        rows = [
            TokenRow(tuple((index * step + 3) % count for index in range(1, 24)), start=1)
            for step in (5, 7)
        ]
        batch = TokenTable(rows, pad=0, packed=True).batch([0, 1]).to(self.device)
        alone_N = self._sharded(_logprobs_of, batch)
        with across_processes(model, self._group):
            together_N = self._sharded(_logprobs_of, batch)
        gap = float((alone_N - together_N).abs().max())
        if not gap <= _TOLERANCE:
            raise UserError(
                f"learner.context_parallel: {type(model).__name__} gives other log-probabilities"
                f" where processes share the tokens of a row, by {gap:.2g} nats; leave it out"
            )

    def backward(
        self, parts: Sequence[AnyBatch], optimizer: Optimizer, *, where: str
    ) -> dict[str, float]:
        """Accumulate the gradient of this process's tokens; see `SupervisedTrainer.backward`."""
        num_units = sum(part.num_units for part in parts)
        totals: dict[str, float] = {}
        for number, part in enumerate(parts, start=1):
            # The backward pass inside too, as it may compute layers again.
            with across_processes(self.trainable.model, self._group):
                with self.trainable.computing():
                    value, metrics = self._sharded(
                        self.objective.loss, part.to(self.device), float(num_units)
                    )
                scalar = float(value.detach())
                check_finite(scalar, where=where)
                optimizer.backward(value, last=number == len(parts))
            add_up(totals, scalar, metrics, share=(part.num_units, num_units))
        return totals

    @torch.no_grad()
    def heldout_value(self, part: AnyBatch) -> float:
        """The summed loss on one held-out batch, the same in every process."""
        with across_processes(self.trainable.model, self._group):
            return super().heldout_value(part)


def _logprobs_of(model: "PreTrainedModel", batch: TokenBatch) -> torch.Tensor:
    found_N, _ = wanted_logprobs(
        model,
        batch.input_ids_BT,
        wanted_BT=batch.wanted_BT,
        position_ids_BT=position_ids(batch),
    )
    return found_N
