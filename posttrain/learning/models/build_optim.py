"""From a recipe's optimization to what steps a model."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from posttrain.learning.models.one_by_one import one_by_one
from posttrain.learning.models.optim import Optimizer, is_narrow
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.models.optimizers.base import TrainedTensors
from posttrain.stage.errors import UserError


def build_optimizer(
    model: nn.Module,
    config: OptimizationConfig | None = None,
    *,
    seed: int = 0,
    sharded: bool = False,
) -> Optimizer:
    """Build what steps a model as its recipe says.

    Every step is given its own learning rate. Embeddings, norms and biases are not pulled to zero.

    Args:
        model: Its parameters that require a gradient are optimized.
        config: Which optimizer, and how; None is AdamW.
        seed: Of what is random in the rounding of weights.
        sharded: True where the model's parameters are shards of one process.

    Returns:
        One object that steps, clips, and has one state.

    Raises:
        UserError: A package is missing, or shards cannot be stepped so.

    """
    config = config or OptimizationConfig()
    parameters = [p for p in model.parameters() if p.requires_grad]
    narrow = any(map(is_narrow, parameters))
    if sharded:
        _refuse_on_shards(config, narrow=narrow)

    def built(tensors: Sequence[Sequence[Tensor]]) -> Mapping[str, torch.optim.Optimizer]:
        return config.optimizer.build(
            sorts(model, tensors),
            weight_decay=config.weight_decay,
            states=config.states,
            sharded=sharded,
        )

    if narrow or config.in_backward or config.offload:
        return one_by_one(parameters, built, config, seed=seed)
    return Optimizer(parameters, built([[each] for each in parameters]))


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


def _refuse_on_shards(config: OptimizationConfig, *, narrow: bool) -> None:
    asked = {
        "learner.weights bf16": narrow,
        f"optimization.states {config.states}": config.states != "fp32",
        "optimization.in_backward": config.in_backward,
        "optimization.offload": config.offload,
    }
    for name, is_set in asked.items():
        if is_set:
            raise UserError(
                f"{name} is for one process that has whole weights, and several have a part each;"
                " do without it, or leave resources.processes out"
            )


def _output_heads(model: nn.Module) -> list[nn.Linear]:
    """Linear layers outside the decoder stack: the language-model head or the reward head."""
    names = {"lm_head", "score", "embed_out"}
    return [m for name, m in model.named_children() if name in names and isinstance(m, nn.Linear)]
