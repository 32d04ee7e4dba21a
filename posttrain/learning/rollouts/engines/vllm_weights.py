"""A policy's weights as vLLM loads them, and a checkpoint directory that is without them."""

import copy
from collections.abc import Container, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_WRAPPED = ".base_layer."


def write_description(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", path: Path
) -> None:
    """All that an engine reads of a checkpoint but the weights, which it is handed in memory."""
    config = copy.deepcopy(model.config)
    # A config that was not read from a file does not say so, and vLLM would have to guess.
    config.architectures = [type(model).__name__]
    config.save_pretrained(path)
    model.generation_config.save_pretrained(path)
    tokenizer.save_pretrained(path)


@torch.no_grad()
def plain_weights(model: "PreTrainedModel", known: Container[str]) -> Iterator[tuple[str, Tensor]]:
    """Go through the weights of a model as they are without adapters, these added to their base.

    A tied weight comes under its further names too, where the engine has them: a CPU's output head
    is a packed copy, which is made anew only when a tensor of its own name arrives.

    Args:
        model: The policy.
        known: Names that the engine has.

    Yields:
        Name and tensor.

    """
    first_names = {name for name, _ in model.named_parameters()}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        if ".lora_" in name or (name not in first_names and name not in known):
            continue
        if _WRAPPED not in name:
            yield name, tensor.detach()
            continue
        layer, leaf = name.split(_WRAPPED)
        yield f"{layer}.{leaf}", _merged(model.get_submodule(layer), leaf, tensor)


def _merged(layer: Any, leaf: str, tensor: Tensor) -> Tensor:
    """The base's weight plus the update of the adapters that are on; a bias has none."""
    if leaf != "weight":
        return tensor.detach()
    return sum((layer.get_delta_weight(name) for name in layer.active_adapters), tensor.detach())
