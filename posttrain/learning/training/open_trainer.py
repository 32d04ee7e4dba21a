"""Who takes the steps of supervised training, and what is balanced beside its loss."""

from posttrain.data.batching import AnyBatch
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.supervised_objective import SupervisedObjective
from posttrain.learning.training.trainer import SupervisedTrainer
from posttrain.stage.context import StageContext


def open_trainer(
    trainable: Trainable, objective: SupervisedObjective[AnyBatch], context: StageContext
) -> SupervisedTrainer[AnyBatch]:
    """Choose what takes the steps; several processes shard the model.

    Args:
        trainable: The model, with its adapter and average.
        objective: The batches of every step, and the loss of one.
        context: Of the stage: number of processes, device.

    Returns:
        The trainer of this process; where the recipe has a loss of the router, with that.

    """
    coefficient = trainable.config.router_loss
    if coefficient is not None:
        from posttrain.learning.training.router_loss import balanced

        objective = balanced(objective, trainable.model, coefficient)
    if context.processes == 1:
        return SupervisedTrainer(trainable, objective, context)
    from posttrain.learning.training.context_parallel import open_shared_trainer

    return open_shared_trainer(trainable, objective, context)
