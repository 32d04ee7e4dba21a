"""The processes that train together, as each of them sees the others."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

_TIMEOUT = timedelta(hours=2)


class Dismissed(Exception):  # noqa: N818 - not an error
    """Raised where a process is done: what comes after training is done in the main one alone."""


@dataclass(frozen=True)
class ProcessGroup:
    """One process of a group; process 0 is the main one, which writes and reports."""

    rank: int
    size: int
    device: torch.device
    mesh: DeviceMesh

    @property
    def is_main(self) -> bool:
        """Whether this process writes checkpoints and outputs."""
        return self.rank == 0

    def from_main(self, value: Any) -> Any:
        """What the main process gave here; the others may give anything."""
        box = [value if self.is_main else None]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def totals(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sums over all processes, by names that are the same in each."""
        sums = torch.tensor(list(values.values()), dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return dict(zip(values, sums.tolist(), strict=True))

    def maxima(self, values: Mapping[str, float]) -> dict[str, float]:
        """The largest over all processes, by names that are the same in each."""
        found = torch.tensor(list(values.values()), dtype=torch.float64, device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return dict(zip(values, found.tolist(), strict=True))

    def from_all(self, value: Any) -> list[Any]:
        """What each process gave here, by rank."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value)
        return found


def open_group(device: str) -> None:
    """Join the group that the environment names, as torchrun sets it."""
    # Shards that wait in host memory are gathered there, which NCCL cannot.
    backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    dist.init_process_group(backend, timeout=_TIMEOUT)


def current_process_group(device: str) -> ProcessGroup:
    """The group that `open_group` joined."""
    mesh = init_device_mesh(torch.device(device).type, (dist.get_world_size(),))
    return ProcessGroup(dist.get_rank(), dist.get_world_size(), torch.device(device), mesh)


def close_group() -> None:
    """Leave the group."""
    dist.destroy_process_group()
