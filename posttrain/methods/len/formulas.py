"""The losses of methods in this folder by their papers, apart from the product's own."""

import math

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


def drpo(rows: FormulaRollouts) -> Tensor:
    """DRPO: right scored above wrong, short right ones weighed more; a squared hinge of KL."""
    total = torch.zeros((), dtype=torch.float64)
    groups = {rows.group[i]: rows.members(i) for i in rows.chosen}
    for group in groups.values():
        apart = torch.cat([rows.log_engine[i] - rows.log_p[i] for i in group]).mean()
        total = total + 500 * (apart - 1e-4).clamp(min=0) ** 2
        right = [i for i in group if rows.reward[i] > 0]
        wrong = [i for i in group if rows.reward[i] <= 0]
        if not right or not wrong:
            continue
        score = {i: rows.log_p[i].mean() for i in group}
        short = {i: math.exp((1 - rows.length(i) / rows.limit) / 0.1) for i in right}
        liked = torch.stack([short[i] * score[i] for i in right]).sum() / sum(short.values())
        powers = torch.stack([(score[i] / 10).exp() for i in wrong])
        total = total - liked + 10 * powers.mean().log()
    return total / len(groups)
