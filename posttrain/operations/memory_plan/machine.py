"""What the stages of a recipe have to fit into: this machine, or the one that somebody names."""

from dataclasses import dataclass

from posttrain.learning.memory.learner import CPU
from posttrain.operations.maintenance.policy import parse_bytes
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import bytesize

CUDA = "cuda"
_SMALLEST = 10**8
"""Bytes below which a size was meant otherwise, as 80 for 80GB."""


@dataclass(frozen=True)
class Machine:
    """Devices, and the bytes of each."""

    device: str
    capacity: int
    """Bytes of one device."""
    count: int = 1

    def room(self, processes: int) -> int:
        """Bytes of one process of several, which have a GPU each or share the host's memory."""
        return self.capacity if self.device == CUDA else self.capacity // processes

    def told(self) -> str:
        """What is counted against, in a few words."""
        if self.device == CPU:
            return f"{bytesize(self.capacity)} of this machine's memory"
        each = f"of {bytesize(self.capacity)}"
        return f"a GPU {each}" if self.count == 1 else f"{self.count} GPUs {each} each"


def named_machine(size: str, count: int) -> Machine:
    """Read a machine off the command line.

    Args:
        size: Memory of a GPU, such as ``80GB``.
        count: GPUs.

    Returns:
        The machine.

    Raises:
        UserError: The size is none.

    """
    capacity = parse_bytes(size)
    if capacity < _SMALLEST:
        raise UserError(
            f"--gpu {size} is {bytesize(capacity)}, and no GPU is that small; write 80GB"
        )
    return Machine(CUDA, capacity, count)


def this_machine(device: str) -> Machine:
    """Look at the machine that the command runs on.

    Args:
        device: Of the recipe, `cpu` or `cuda`.

    Returns:
        What is free for a stage.

    Raises:
        UserError: The recipe wants a GPU, and there is none.

    """
    import psutil

    if device == CPU:
        return Machine(CPU, int(psutil.virtual_memory().available))
    import torch

    if not torch.cuda.is_available():
        raise UserError(
            "run.device is cuda, and this machine has no GPU to count against; name one, as in"
            " --gpu 80GB, with --gpus for several"
        )
    found = [torch.cuda.mem_get_info(each)[1] for each in range(torch.cuda.device_count())]
    return Machine(CUDA, min(found), len(found))
