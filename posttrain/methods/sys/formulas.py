"""The losses of methods in this folder by their papers, apart from the product's own."""

import torch
from torch import Tensor

from posttrain.methods.formula import FormulaRollouts, clipped_gain, whitened


def areal(rows: FormulaRollouts) -> Tensor:
    """The decoupled objective: the clip is about one policy, the weight is to each token's own."""
    alike = [
        torch.full((rows.length(i),), each, dtype=torch.float64)
        for i, each in enumerate(rows.reward)
    ]
    a = whitened(alike, less=0)

    def loss(i: int) -> Tensor:
        weight = (rows.log_old[i] - rows.log_engine[i]).exp()
        return -weight * clipped_gain(rows.ratio(i, rows.log_old), a[i], 0.2, 0.2)

    return rows.over_tokens(loss)
