"""The losses of methods in this folder by their papers, apart from the product's own."""

import math
from collections.abc import Sequence

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


def repeated(ids: Sequence[int], n: int) -> set[int]:
    """Name the places of all n-grams that stood before."""
    grams = [tuple(ids[at : at + n]) for at in range(len(ids) - n + 1)]
    again = [at for at, gram in enumerate(grams) if gram in grams[:at]]
    return {at + more for at in again for more in range(n)}


def demystifying_long_cot(rows: FormulaRollouts) -> Tensor:
    """PPO at λ 1 on the cosine reward; repetitions are discounted by 0.99, all else is not."""
    per_token = []
    for i in range(len(rows.reward)):
        length, row = rows.length(i), rows.stored[i]
        wave = (1 + math.cos(math.pi * length / rows.limit)) / 2
        end = 1 + wave if row["solved"] else -10.0 if row["end"] == "tokens" else -10 * wave
        apart = rows.log_engine[i] - rows.log_ref[i]
        places, found = repeated(rows.drawn(i), 6), []
        for t in range(length):
            fines = sum(0.99 ** (s - t) for s in places if s >= t)
            found.append(end - 0.01 * float(apart[t:].sum()) - 0.05 * fines)
        per_token.append(torch.tensor(found, dtype=torch.float64) - rows.values[i])
    a = whitened(per_token, less=1)
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))


def apo_view_r1(rows: FormulaRollouts) -> Tensor:
    """GRPO over tokens; a divergence by difficulty, and failures by how much too long they are."""
    a = rows.standardized()

    def loss(i: int) -> Tensor:
        group = rows.members(i)
        right = [j for j in group if rows.reward[j] == 1]
        share, factor, eased = len(right) / len(group), 1.0, 1.0
        if right and i not in right:
            usual = sum(rows.length(j) for j in right) / len(right)
            factor = 2 - 1.01 ** -max(0.0, rows.length(i) - usual)
        if a[i] > 0 and 0 < share < 1:
            eased = 1 - math.exp(-math.e * share)
        return 0.001 * eased * rows.k3(i) - factor * clipped_gain(rows.ratio(i), a[i], 0.2, 0.2)

    return rows.over_tokens(loss)


def rorecomp(rows: FormulaRollouts) -> Tensor:
    """GRPO without a divergence, among those that are selected."""
    a = rows.standardized()
    return rows.over_answers(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))
