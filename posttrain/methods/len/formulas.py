"""The losses of methods in this folder by their papers, apart from the product's own."""

import torch
from torch import Tensor

from posttrain.methods.formula import FormulaRollouts, clipped_gain, whitened


def dler(rows: FormulaRollouts) -> Tensor:
    """REINFORCE++'s baseline variant with clip-higher, dual clip and k3."""
    alike = [
        torch.full((rows.length(i),), each, dtype=torch.float64)
        for i, each in enumerate(rows.centered())
    ]
    a = whitened(alike, less=0)

    def loss(i: int) -> Tensor:
        plain = -clipped_gain(rows.ratio(i), a[i], 0.2, 0.28)
        held = torch.where(a[i] < 0, torch.minimum(plain, -10 * a[i]), plain)
        return held + 5e-4 * rows.k3(i)

    return rows.over_tokens(loss)
