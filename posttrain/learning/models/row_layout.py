"""Which tokens of some rows are computed, and where each stands when rows attend."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_TILE = 16
"""Rows are as long as a multiple of this for attention: torch's kernel takes 1.5 times as long for
63 tokens as for 64."""


@dataclass(frozen=True)
class RowLayout:
    """Attention works on rows ``[B, T]``, everything else on the tokens that are computed.

    Equal prefixes of rows are computed once, and padding not at all.
    """

    ids_N: Tensor
    """The tokens that are computed."""
    position_N: Tensor
    """Position of each in its row."""
    source_BT: Tensor
    """Which computed token stands where in the rows; past a row's end any."""
    place_N: Tensor
    """Place of each computed token's output in the flattened rows."""
    wanted_W: Tensor
    """The computed tokens whose last state is wanted, row by row."""
    wanted_place_W: Tensor
    """Places of their outputs in the flattened rows."""

    def in_rows(self, values_NF: Tensor) -> Tensor:
        """Computed tokens where they stand: ``[B, T, F]``."""
        return values_NF.index_select(0, self.source_BT.flatten()).view(*self.source_BT.shape, -1)


def lay_out(input_ids_BT: Tensor, wanted_BT: Tensor, starts_B: Tensor) -> RowLayout:
    """Choose what is computed of rows padded on the right.

    Args:
        input_ids_BT: Token ids.
        wanted_BT: True where a last state is wanted; what comes after a row's last is left out.
        starts_B: Rows that are equal up to here share what is computed of it.

    Returns:
        The computed tokens and their places.

    """
    num_rows, length = wanted_BT.shape
    positions_T = torch.arange(length)
    # A row that wants no state keeps a token, as attention is to be finite.
    ends_B = (wanted_BT * (positions_T + 1)).amax(-1).clamp_min(1)
    length = int(ends_B.max())
    ids_BT, wanted_BT = input_ids_BT[:, :length], wanted_BT[:, :length]
    positions_BT = positions_T[:length].expand(num_rows, -1)
    starts_B = torch.minimum(starts_B, ends_B)
    owners_B = _owners(ids_BT, starts_B)
    owned_BT = (owners_B == torch.arange(num_rows))[:, None] | (positions_BT >= starts_B[:, None])
    computed_BT = (positions_BT < ends_B[:, None]) & owned_BT
    source_BT = (computed_BT.flatten().cumsum(0) - 1).view(num_rows, length).clamp_min_(0)
    source_BT = torch.where(owned_BT, source_BT, source_BT[owners_B])
    padding = (0, -length % _TILE)
    return RowLayout(
        ids_N=ids_BT[computed_BT],
        position_N=positions_BT[computed_BT],
        source_BT=F.pad(source_BT, padding),
        place_N=_places(F.pad(computed_BT, padding)),
        wanted_W=source_BT[wanted_BT],
        wanted_place_W=_places(F.pad(wanted_BT, padding)),
    )


def _places(chosen_BT: Tensor) -> Tensor:
    return chosen_BT.flatten().nonzero()[:, 0]


def _owners(ids_BT: Tensor, starts_B: Tensor) -> Tensor:
    """The first row with the same prefix, for every row ``[B]``."""
    first: dict[tuple[int, ...], int] = {}
    rows = enumerate(zip(ids_BT.tolist(), starts_B.tolist(), strict=True))
    owners = [first.setdefault(tuple(ids[:start]), row) for row, (ids, start) in rows]
    return torch.tensor(owners)
