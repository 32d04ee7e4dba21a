"""Which layers of a model low-rank adapters can wrap and 4 bits can hold, by whatever name."""

from typing import TYPE_CHECKING, Any

import torch

from posttrain.learning.models.backbone import backbone

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_STATE_MODELS = frozenset({"falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h"})
"""Architectures whose kernels read the weight of `out_proj` itself, so that peft refuses it."""
_READ_ITSELF = ".dt_proj"
"""End of the names of layers that are never called: states read their weight."""


def linear_layers(model: "PreTrainedModel") -> dict[str, torch.nn.Module]:
    """Find the linear layers of a model's language part, fused and transposed ones too.

    Left out are heads; routers, whose output is no single tensor; what reads images; and experts
    that are one parameter of three dimensions (peft itself adapts those in some architectures, in
    place of the linear layers of the same name: docs/architectures.md has which).

    Args:
        model: A causal language model or sequence classifier of transformers.

    Returns:
        The layers by name, in the model's order.

    """
    from transformers.pytorch_utils import Conv1D

    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    whole = backbone(model)
    language = getattr(whole, "language_model", whole)
    inside = {id(module) for module in language.modules()}
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear | Conv1D)
        and id(module) in inside
        and module is not head
        and not type(module).__name__.endswith("Router")
        and not is_read_directly(model, name)
    }


def is_read_directly(model: torch.nn.Module, name: str) -> bool:
    """Tell whether an architecture reads the weight of a layer without calling the layer.

    Args:
        model: Of transformers, or a part of one.
        name: Of the layer.

    Returns:
        True of layers whose place no other layer can take.

    """
    config: Any = getattr(model, "config", None)
    states = config is not None and config.get_text_config().model_type in _STATE_MODELS
    return name.endswith(_READ_ITSELF) or (states and name.endswith(".out_proj"))
