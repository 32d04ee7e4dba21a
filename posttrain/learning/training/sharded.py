"""Several processes train together, each taking its share of every step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from posttrain.data.batching import AnyBatch
from posttrain.learning.models.build_optim import build_optimizer
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.distributed.gather import GatheredTensors
from posttrain.learning.models.distributed.group import (
    Dismissed,
    ProcessGroup,
    current_process_group,
)
from posttrain.learning.models.distributed.shard import restore, shard
from posttrain.learning.models.optim import Optimizer
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.training.prepare import MovingAverage, Trainable
from posttrain.learning.training.progress import Progress, Stateful
from posttrain.learning.training.shared_progress import SharedProgress
from posttrain.learning.training.supervised_objective import Gather, SupervisedObjective
from posttrain.learning.training.trainer import SupervisedTrainer, add_up, check_finite
from posttrain.stage.context import StageContext

T = TypeVar("T")


class ShardedSupervisedTrainer(SupervisedTrainer[AnyBatch]):
    """One of several processes.

    The plan of the steps is that of one process. Losses are given the units of the whole step, so
    gradients and metrics add up over the processes to what one process would find.
    """

    def __init__(
        self, trainable: Trainable, objective: SupervisedObjective[AnyBatch], context: StageContext
    ) -> None:
        self._group = current_process_group(context.device)
        self._whole = trainable
        self._sharded = shard(trainable.model, self._group, offload=trainable.config.offload)
        batches = replace(objective.batches, at_least=self._group.size)
        super().__init__(
            twin(trainable, self._sharded.model), replace(objective, batches=batches), context
        )

    def optimizer(self, config: OptimizationConfig) -> Optimizer:
        """The optimizer of this process's shards."""
        return build_optimizer(self.trainable.model, config, seed=self.seed, group=self._group)

    def progress(self, parts: Mapping[str, Stateful], checkpointer: Checkpointer) -> Progress:
        """Save the shards of all processes; see `SupervisedTrainer.progress`."""
        return SharedProgress.of(
            parts,
            checkpointer,
            self._group,
            trained=self.trainable.parts(),
            copies={"best": dict(self.trainable.model.named_parameters())},
            own=["optimizer"],
        )

    def weights(self) -> Any:
        """The whole weights; every process must ask for them."""
        return GatheredTensors(self._sharded.model, self._group)

    def micro_batches(self, step: int) -> list[AnyBatch]:
        """All parts of the step, of which `backward` takes a share."""
        parts = self.objective.batches.micro_batches(step)
        if self.objective.gather is None:
            return parts
        moved = [part.to(self.device) for part in parts]
        return self.gathered(self.objective.gather, moved, step)

    def gathered(
        self, gather: Gather[AnyBatch], parts: list[AnyBatch], step: int
    ) -> list[AnyBatch]:
        """All processes ask the model in shards; see `SupervisedTrainer.gathered`."""
        found: list[AnyBatch] = self._sharded(gather, parts, step)
        return found

    def backward(
        self, parts: Sequence[AnyBatch], optimizer: Optimizer, *, where: str
    ) -> dict[str, float]:
        """Accumulate the gradient of this process's share; see `SupervisedTrainer.backward`."""
        num_units = sum(part.num_units for part in parts)
        totals: dict[str, float] = {}
        mine = shares(parts, self._group)
        for number, (part, counts) in enumerate(mine, start=1):
            with self.trainable.computing():
                value, metrics = self._sharded(
                    self.objective.loss, part.to(self.device), float(num_units)
                )
            optimizer.backward(value if counts else 0.0 * value, last=number == len(mine))
            scalar = float(value.detach()) if counts else 0.0
            units = part.num_units if counts else 0.0
            add_up(totals, scalar, metrics, share=(units, num_units))
        totals = self._group.totals(totals)
        check_finite(totals["loss"], where=where)
        return totals

    def heldout_value(self, part: AnyBatch) -> float:
        """The summed loss on one held-out batch, the same in every process."""
        value, _ = self._sharded(self.objective.loss, part, 1.0)
        return float(value)

    def finish(self, put_best: Callable[[], None] | None = None) -> None:
        """Give the whole model its weights in the main process; the others are done."""
        super().finish(put_best)
        restore(self._whole.model, self._sharded, self._group)
        if not self._group.is_main:
            raise Dismissed
        self._whole.model.eval()


def shares(parts: Sequence[T], group: ProcessGroup) -> list[tuple[T, bool]]:
    """Take every how-manieth part, and say of each whether it counts.

    Parameters are put together by all processes at once, so each makes as many passes: one that
    runs out of parts repeats one for nothing.

    Args:
        parts: Micro-batches of the step, equal in all processes.
        group: The processes, and which of them this is.

    Returns:
        The parts of this process, with False for one that is repeated for nothing.

    """
    mine = [(part, True) for part in parts[group.rank :: group.size]]
    num_passes = -(-len(parts) // group.size)
    return mine + [(parts[0], False)] * (num_passes - len(mine))


def twin(trainable: Trainable, model: Any) -> Trainable:
    """Return the same as `trainable`, of a model in shards.

    Args:
        trainable: Of the whole model; its moving average is emptied, to free its memory.
        model: In shards.

    Returns:
        With a moving average of the shards, where there was one.

    """
    average = None
    if trainable.average:
        average = MovingAverage(model, trainable.average.decay)
        # They are as large as the model, and nothing reads them again.
        trainable.average.averages.clear()
    return replace(trainable, model=model, average=average)
