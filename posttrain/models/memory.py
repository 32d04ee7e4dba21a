"""Whether a checkpoint fits into memory, estimated from its headers before anything is loaded."""

import math
from pathlib import Path

import torch

from posttrain.amounts import bytesize
from posttrain.errors import UserError

_COPIES = {"inference": 1, "training": 4}
"""Weights alone; or weights, gradients and the two moments of Adam."""
_WHAT = {"inference": "its weights", "training": "weights, gradients and optimiser"}
_REMEDY = {
    "inference": "take a smaller model, or a machine with more memory",
    "training": "train a LoRA adapter, take a smaller model, or a machine with more memory",
}


def num_stored_parameters(path: Path) -> int:
    """Elements of all tensors in the safetensors files of a checkpoint directory."""
    from safetensors import safe_open

    total = 0
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            names = tensors.keys()  # not iterable itself
            total += sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)
    return total


def check_memory(path: Path, *, device: str, dtype: torch.dtype, purpose: str) -> None:
    """Refuse a checkpoint whose `purpose` ("inference" or "training") needs more than is free.

    A lower bound: activations and caches come on top, and depend on batch and length.
    """
    num_parameters = num_stored_parameters(path)
    needed = num_parameters * dtype.itemsize * _COPIES[purpose]
    free = free_memory(device)
    if needed > free:
        raise UserError(
            f"{path}: {purpose} takes at least {bytesize(needed)} for {_WHAT[purpose]}"
            f" ({num_parameters:,} parameters), but {bytesize(free)} are free on {device};"
            f" {_REMEDY[purpose]}"
        )


def free_memory(device: str) -> int:
    """Bytes that a new process could take on `device`."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)[0]
    import psutil

    return int(psutil.virtual_memory().available)
