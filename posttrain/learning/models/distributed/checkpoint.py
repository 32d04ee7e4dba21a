"""Checkpoints that all processes write and read together, each its own rows of every tensor."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

from posttrain.learning.models.distributed.group import ProcessGroup
from posttrain.learning.models.stored_tensors import StoredTensor, TensorPiece, whole_piece


@dataclass(frozen=True)
class OwnBytes:
    """Bytes that are this process's own, filled up to the length of the longest."""

    mine: Tensor

    @classmethod
    def of(cls, given: Tensor, longest: int) -> "OwnBytes":
        """Fill bytes up.

        Args:
            given: Of this process.
            longest: How many some process has at the most.

        Returns:
            As many as that.

        """
        return cls(torch.cat([given, given.new_zeros(longest - len(given))]))


class ShareOfGroup:
    """What one of several processes writes: its shards, and the main one all that is whole."""

    def __init__(self, group: ProcessGroup) -> None:
        self.rank, self.size = group.rank, group.size
        self._group = group

    def piece_of(self, value: Any) -> TensorPiece | None:
        """The rows here of a tensor in shards; of another tensor all, in the main process."""
        if isinstance(value, DTensor):
            rows = value.to_local().detach()
            return TensorPiece(rows, tuple(value.shape), first_row(value, self._group))
        if isinstance(value, OwnBytes):
            length = len(value.mine)
            return TensorPiece(value.mine, (self.size * length,), self.rank * length)
        return whole_piece(value) if self.rank == 0 else None

    def agree(self, draft: Path) -> Path:
        """The main process's folder, which is there once this returns."""
        return Path(self._group.from_main(str(draft)))


def first_row(tensor: DTensor, group: ProcessGroup) -> int:
    """Number of the row of the whole tensor that this process's shard begins with.

    Args:
        tensor: In shards of whole rows, as FSDP2 makes them: as even as `torch.chunk`.
        group: The processes that share it.

    Returns:
        A row from 0; behind the last one where nothing is left for this process.

    """
    assert tensor.placements == (Shard(0),)
    rows = -(-tensor.shape[0] // group.size)
    return min(group.rank * rows, tensor.shape[0])


def read_like(stored: StoredTensor, like: Tensor, group: ProcessGroup) -> Tensor:
    """Read what this process needs of a stored tensor, however many processes wrote it.

    Args:
        stored: The tensor, on disk.
        like: Gives device and placement; of a tensor in shards only this process's rows are read.
        group: The processes.

    Returns:
        A tensor that is placed as `like`, with the numbers as they are stored.

    """
    if not isinstance(like, DTensor):
        return stored.rows().to(like.device)
    first = first_row(like, group)
    rows = stored.rows(first, first + like.to_local().shape[0])
    return DTensor.from_local(
        rows.to(like.device),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )


class InShards:
    """A part of a checkpoint that holds tensors by name, some of them in shards."""

    def __init__(self, part: Any, group: ProcessGroup) -> None:
        self._part = part
        self._group = group

    def state_dict(self) -> dict[str, Tensor]:
        """The part's own."""
        state: dict[str, Tensor] = self._part.state_dict()
        return state

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, StoredTensor]) -> None:
        """Read this process's rows of every tensor."""
        for name, mine in self._part.state_dict().items():
            mine.copy_(read_like(state[name], mine, self._group))


class LikeTensors:
    """A part whose state holds copies of tensors, under their names and at any depth."""

    def __init__(self, part: Any, tensors: Mapping[str, Tensor], group: ProcessGroup) -> None:
        """Adapt a part.

        Args:
            part: Such as a moving reference, or the best weights so far.
            tensors: What it has copies of, by name: says how each is placed.
            group: The processes.

        """
        self._part, self._tensors, self._group = part, tensors, group

    def state_dict(self) -> Any:
        """The part's own."""
        return self._part.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Read this process's rows of every tensor."""
        self._part.load_state_dict(self._read(state, ""))

    def _read(self, value: Any, name: str) -> Any:
        if isinstance(value, StoredTensor):
            return read_like(value, self._tensors[name], self._group)
        if isinstance(value, Mapping):
            return {key: self._read(each, key) for key, each in value.items()}
        return value
