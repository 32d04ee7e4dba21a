"""From a recipe's optimization to what steps a model."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from posttrain.learning.models.one_by_one import one_by_one
from posttrain.learning.models.optim import Optimizer, is_narrow
from posttrain.learning.models.optimization import OptimizationConfig, why_whole
from posttrain.learning.models.optimizers.base import TrainedTensors
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.learning.models.distributed.group import ProcessGroup


def build_optimizer(
    model: nn.Module,
    config: OptimizationConfig | None = None,
    *,
    seed: int = 0,
    group: "ProcessGroup | None" = None,
) -> Optimizer:
    """Build what steps a model as its recipe says.

    Every step is given its own learning rate. Embeddings, norms and biases are not pulled to zero.

    Args:
        model: Its parameters that require a gradient are optimized.
        config: Which optimizer, and how; None is AdamW.
        seed: Of what is random in the rounding of weights.
        group: The processes whose shards the model's parameters are; None where they are whole.

    Returns:
        One object that steps, clips, and has one state.

    Raises:
        UserError: A package is missing, or shards cannot be stepped so.

    """
    config = config or OptimizationConfig()
    parameters = [p for p in model.parameters() if p.requires_grad]
    narrow = any(map(is_narrow, parameters))
    if group is not None and (why := why_whole(config, narrow=narrow)):
        raise UserError(why)
    by_piece = narrow or config.in_backward or config.offload

    def built(tensors: Sequence[Sequence[Tensor]]) -> Mapping[str, torch.optim.Optimizer]:
        return config.optimizer.build(
            sorts(model, tensors),
            weight_decay=config.weight_decay,
            states=config.states,
            sharded=group is not None,
        )

    if group is None and by_piece:
        return one_by_one(parameters, built, config, seed=seed)
    if group is None:
        return Optimizer(parameters, built([[each] for each in parameters]))
    if by_piece or config.states != "fp32":
        from posttrain.learning.models.one_by_one_on_shards import kinds_on

        return one_by_one(parameters, built, config, seed=seed, kinds=kinds_on(group))
    from posttrain.learning.models.distributed.optim import ShardedOptimizer

    return ShardedOptimizer(Optimizer(parameters, built([[each] for each in parameters])), group)


def sorts(model: nn.Module, tensors: Sequence[Sequence[Tensor]]) -> TrainedTensors:
    """Tell the matrices of a model's layers from its other tensors.

    Args:
        model: Its parameters that require a gradient are told apart.
        tensors: For each of them, in their order, the tensor itself or what stands in for it.

    Returns:
        The same tensors in two lists.

    """
    trained = [p for p in model.parameters() if p.requires_grad]
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    apart = embeddings | {id(m.weight) for m in _output_heads(model)}
    of_layers = [p.ndim == 2 and id(p) not in apart for p in trained]
    pairs = [
        (each, of_layer)
        for each_of, of_layer in zip(tensors, of_layers, strict=True)
        for each in each_of
    ]
    return TrainedTensors(
        matrices=[each for each, of_layer in pairs if of_layer],
        others=[each for each, of_layer in pairs if not of_layer],
    )


def _output_heads(model: nn.Module) -> list[nn.Linear]:
    """Linear layers outside the decoder stack: the language-model head or the reward head."""
    names = {"lm_head", "score", "embed_out"}
    return [m for name, m in model.named_children() if name in names and isinstance(m, nn.Linear)]
