"""Whether a checkpoint fits into memory, estimated from its headers before anything is loaded."""

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.learning.models.optimizers.state_bytes import PART_BYTES
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import bytesize

if TYPE_CHECKING:
    import torch

    from posttrain.learning.models.optim import Optimizer

_REFUSED = re.compile(r"out of memory|can't allocate memory")
_ASKED = re.compile(r"allocate ([\d.]+) (bytes|[KMGTP]iB)")


def num_stored_parameters(path: Path) -> int:
    """Elements of all tensors in the safetensors files of a checkpoint directory."""
    from safetensors import safe_open

    total = 0
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            names = tensors.keys()  # not iterable itself
            total += sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)
    return total


def check_memory(
    path: Path, *, device: str, dtype: "torch.dtype | None", processes: int = 1
) -> None:
    """Refuse a checkpoint whose weights do not fit into memory.

    A lower bound: activations and caches come on top, and depend on batch and length.

    Args:
        path: Folder of the checkpoint.
        device: Where the weights are to go.
        dtype: What their numbers become; None leaves them as they are stored.
        processes: How many have a part each; those of a machine have its memory together, and a
            GPU each.

    Raises:
        UserError: They take more bytes than are free.

    """
    num_parameters = num_stored_parameters(path)
    stored = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    needed = stored if dtype is None else num_parameters * dtype.itemsize
    if device.startswith("cuda"):
        needed //= processes
    free = free_memory(device)
    if needed > free:
        raise UserError(
            f"{path}: its weights take {bytesize(needed)} ({num_parameters:,} parameters), but"
            f" {bytesize(free)} are free on {device}; take a smaller model, or a machine with more"
            " memory"
        )


def check_training_memory(optimizer: "Optimizer", *, device: str) -> None:
    """Refuse to train where a loaded model leaves no room for what training adds.

    That is a gradient and the optimizer's states for every parameter that is trained, adapters
    alone where there are some. A lower bound: activations depend on batch and length.

    Args:
        optimizer: The optimizer, over all parameters that are trained.
        device: Where the model is.

    Raises:
        UserError: What is added takes more bytes than are free.

    """
    held, parameters = optimizer.held, optimizer.parameters
    gradients = [p.numel() * p.element_size() for p in parameters]
    states = sum(
        (PART_BYTES.get(name, 0) + held.per_parameter) * parameter.numel()
        for name, members in optimizer.members.items()
        for parameter in members
    )
    needed = {device: sum(gradients) if held.gradients_at_once else max(gradients)}
    where = "cpu" if held.states_on_host else device
    needed[where] = needed.get(where, 0) + int(states)
    for place, count in needed.items():
        _refuse_more_than_free(count, place, sum(p.numel() for p in parameters))


def _refuse_more_than_free(needed: int, device: str, num_parameters: int) -> None:
    free = free_memory(device)
    if needed > free:
        raise UserError(
            f"training {num_parameters:,} parameters takes at least {bytesize(needed)} for"
            f" gradients and optimizer, but {bytesize(free)} are free on {device}; train an adapter"
            " (learner.lora, or a lower rank of it), take a smaller model, or a machine with more"
            " memory"
        )


def refused_memory(error: Exception) -> str | None:
    """How much could not be had, where that is what the error says; None for any other error."""
    if not isinstance(error, MemoryError) and not (
        isinstance(error, RuntimeError) and _REFUSED.search(str(error))
    ):
        return None
    asked = _ASKED.search(str(error))
    if asked is None:
        return "more than there is"
    amount, unit = asked.groups()
    return bytesize(int(amount)) if unit == "bytes" else f"{amount} {unit}"


def free_memory(device: str) -> int:
    """Bytes that this process could take on `device`, beside what it uses."""
    if device.startswith("cuda"):
        import torch  # not above: every stage that fails asks here why, also one without torch

        # What torch holds for itself and does not use is there for the next tensor.
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + held
    import psutil

    return int(psutil.virtual_memory().available)
