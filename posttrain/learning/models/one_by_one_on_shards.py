"""Steps that each process takes on its own rows of one weight after the other, in float32."""

import io
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from posttrain.learning.models.distributed.checkpoint import OwnBytes, first_row
from posttrain.learning.models.distributed.group import ProcessGroup
from posttrain.learning.models.one_by_one import (
    InBackwardOptimizer,
    Kinds,
    OneByOneOptimizer,
    WeightPiece,
    piece_borders,
)
from posttrain.learning.models.optim import OF_PROCESSES, refuse_other_processes
from posttrain.learning.models.rounding import Within

_BYTES = "bytes"


class OneByOneOnShards(OneByOneOptimizer):
    """As `OneByOneOptimizer`, of this process's numbers of every piece that one process has.

    So noise is that of one process. Blocks of 8-bit states begin where the numbers here do, and are
    others than one process's.
    """

    def __init__(self, *args: Any, group: ProcessGroup, **options: Any) -> None:
        self._group = group
        super().__init__(*args, **options)

    def cut(self, parameters: Sequence[Tensor], *, in_pieces: bool) -> list[WeightPiece]:
        """Take what is here of every piece; see `OneByOneOptimizer.cut`."""
        assert in_pieces
        pieces: list[WeightPiece] = []
        number = -1
        for index, parameter in enumerate(parameters):
            assert isinstance(parameter, DTensor)
            row = parameter.numel() // max(1, parameter.shape[0])
            first = first_row(parameter, self._group) * row
            last = first + parameter.to_local().numel()
            for begin, end in piece_borders(parameter):
                number += 1
                low, high = max(begin, first), min(end, last)
                if low < high:
                    within = Within(low - begin, end - begin)
                    pieces.append(WeightPiece(index, number, low - first, high - first, within))
        return pieces

    def here(self, tensor: Tensor) -> Tensor:
        """The rows of this process."""
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    def whole(self, norm: Tensor) -> Tensor:
        """The norm over the rows of all processes."""
        squared = norm.detach().double().square()
        dist.all_reduce(squared)
        return squared.sqrt().to(norm.dtype)

    def state_dict(self) -> dict[str, Any]:
        """What each process has, as bytes: it is cut as its shards are."""
        buffer = io.BytesIO()
        torch.save(super().state_dict(), buffer)
        mine = torch.frombuffer(bytearray(buffer.getbuffer()), dtype=torch.uint8)
        lengths = self._group.from_all(len(mine))
        return {OF_PROCESSES: lengths, _BYTES: OwnBytes.of(mine, max(lengths))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what this process has written."""
        refuse_other_processes(state, self._group.size)
        lengths = state[OF_PROCESSES]
        begin = self._group.rank * max(lengths)
        mine = state[_BYTES].rows(begin, begin + lengths[self._group.rank])
        read = io.BytesIO(mine.numpy().tobytes())
        super().load_state_dict(torch.load(read, map_location="cpu", weights_only=True))


class InBackwardOnShards(OneByOneOnShards, InBackwardOptimizer):
    """As `InBackwardOptimizer`: FSDP2 tells when the sum of a shard's gradient is there."""


def kinds_on(group: ProcessGroup) -> Kinds:
    """What steps the shards of a group, after the backward pass and within it."""
    return partial(OneByOneOnShards, group=group), partial(InBackwardOnShards, group=group)
