"""Which tokens of some rows are computed, and where each stands when rows attend."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_TILE = 16
"""Rows are as long as a multiple of this for attention: torch's kernel takes 1.5 times as long for
63 tokens as for 64."""


@dataclass(frozen=True)
class Layout:
    """Attention works on rows ``[B, T]``, everything else on the tokens that are computed.

    `places_BT` says which computed token stands where in the rows, `rows_N` at which place of the
    flattened rows a computed token's output is. Both are None where every token is computed: rows
    that share nothing and have no padding, `num_given` tokens each.
    """

    ids_N: Tensor
    position_N: Tensor
    num_rows: int
    num_given: int
    length: int
    places_BT: Tensor | None
    rows_N: Tensor | None
    wanted_W: Tensor
    wanted_in_rows_W: Tensor
    seen_B11T: Tensor | None
    """What the one wanted token of each row sees; None where some row wants another number."""

    def in_rows(self, values_NF: Tensor) -> Tensor:
        """Computed tokens where they stand: ``[B, T, F]``. What stands past a row's end is free."""
        if self.places_BT is not None:
            values_NF = values_NF.index_select(0, self.places_BT)
            return values_NF.view(self.num_rows, self.length, -1)
        rows_BTF = values_NF.view(self.num_rows, self.num_given, -1)
        return F.pad(rows_BTF, (0, 0, 0, self.length - self.num_given))

    def computed(self, rows_BTF: Tensor) -> Tensor:
        """Of rows, what stands at the computed tokens: ``[N, F]``."""
        if self.rows_N is None:
            return rows_BTF[:, : self.num_given].reshape(-1, rows_BTF.shape[-1])
        return rows_BTF.flatten(0, 1).index_select(0, self.rows_N)


def lay_out(input_ids_BT: Tensor, wanted_BT: Tensor, starts_B: Tensor) -> Layout:
    """Rows padded on the right whose equal beginnings, up to `starts_B`, are computed once."""
    num_rows, length = wanted_BT.shape
    positions_T = torch.arange(length)
    # What comes after the last wanted state is seen by nobody. A row that wants none keeps a token.
    ends_B = (wanted_BT * (positions_T + 1)).amax(-1).clamp_min(1)
    length = int(ends_B.max())
    ids_BT, wanted_BT = input_ids_BT[:, :length], wanted_BT[:, :length]
    positions_BT = positions_T[:length].expand(num_rows, -1)
    owners_B, shared = _owners(ids_BT, torch.minimum(starts_B, ends_B))
    computed_BT = positions_BT < ends_B[:, None]
    if shared:
        first_B = owners_B == torch.arange(num_rows)
        computed_BT &= first_B[:, None] | (positions_BT >= starts_B[:, None])
    places_BT = (computed_BT.flatten().cumsum(0) - 1).view(num_rows, length).clamp_min_(0)
    if shared:
        places_BT = torch.where(positions_BT < starts_B[:, None], places_BT[owners_B], places_BT)
    padding = (0, -length % _TILE)
    dense = bool(computed_BT.all())
    once = bool((wanted_BT.sum(-1) == 1).all())
    seen_BT = torch.arange(length + padding[1]) < ends_B[:, None]
    return Layout(
        ids_N=ids_BT[computed_BT],
        position_N=positions_BT[computed_BT],
        num_rows=num_rows,
        num_given=length,
        length=length + padding[1],
        places_BT=None if dense else F.pad(places_BT, padding).flatten(),
        rows_N=None if dense else _places(F.pad(computed_BT, padding)),
        wanted_W=places_BT[wanted_BT],
        wanted_in_rows_W=_places(F.pad(wanted_BT, padding)),
        seen_B11T=seen_BT[:, None, None] if once else None,
    )


def _places(chosen_BT: Tensor) -> Tensor:
    return chosen_BT.flatten().nonzero()[:, 0]


def _owners(ids_BT: Tensor, starts_B: Tensor) -> tuple[Tensor, bool]:
    """The first row with the same prefix, for every row, and whether any is another row."""
    first: dict[tuple[int, ...], int] = {}
    owners: list[int] = []
    for row, (ids, start) in enumerate(zip(ids_BT.tolist(), starts_B.tolist(), strict=True)):
        owners.append(first.setdefault(tuple(ids[:start]), row))
    return torch.tensor(owners), len(first) < len(owners)
