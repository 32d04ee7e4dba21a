"""Rows laid end to end in one row of tensors, and how to cut them apart again."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """The borders inside a packed row of `T` tokens that holds `B` rows.

    `position_ids_BT` ``[1, T]`` restarts at 0 where a row begins. `wanted_rows_BT` is the loss mask
    of the same rows one below the other ``[B, longest]``: read row by row, its true entries are
    the wanted tokens in packed order. `last_B` are the places of the rows' last tokens.
    """

    position_ids_BT: Tensor
    wanted_rows_BT: Tensor
    last_B: Tensor

    def to(self, device: str | torch.device) -> "Packing":
        """The same on `device`."""
        moved = (self.position_ids_BT, self.wanted_rows_BT, self.last_B)
        return Packing(*(tensor.to(device) for tensor in moved))


def packing_of(length_B: Tensor, start_B: Tensor) -> Packing:
    """The borders of rows of these lengths; the tokens from `start_B` on bear loss.

    >>> packing_of(torch.tensor([2, 3]), torch.tensor([1, 1])).position_ids_BT
    tensor([[0, 1, 0, 1, 2]])
    """
    ends_B = length_B.cumsum(0)
    begins_T = torch.repeat_interleave(ends_B - length_B, length_B)
    positions_T = torch.arange(int(ends_B[-1])) - begins_T
    places_T = torch.arange(int(length_B.max()))
    wanted_BT = (places_T >= start_B[:, None]) & (places_T < length_B[:, None])
    return Packing(positions_T[None], wanted_BT, ends_B - 1)
