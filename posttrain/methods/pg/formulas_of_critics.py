"""The losses of methods in this folder that learn from a critic, by their papers."""

import math

import torch
from torch import Tensor

from posttrain.methods.formula import FormulaRollouts, clipped_gain, generalized, whitened


def ppo(rows: FormulaRollouts) -> Tensor:
    """PPO with generalized advantages at λ 0.95, whitened; the divergence is in the reward."""
    a = rows.estimated(rows.paid(0.05))
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))


def oreal(rows: FormulaRollouts) -> Tensor:
    """Right cloned, wrong pushed back, each over its own tokens, where the outcome shows."""
    a, right = rows.against_others(rows.reward), [r > 0 for r in rows.reward]
    sizes = [sum(rows.length(i) for i, good in enumerate(right) if good == s) for s in (0, 1)]

    def loss(i: int) -> Tensor:
        p = (rows.values[i].cumsum(0) / torch.arange(1, rows.length(i) + 1)).sigmoid()
        w = (2 * p - 1 if right[i] else 1 - 2 * p).clamp(0, 1)
        return -(1.0 + right[i]) / sizes[right[i]] * (w * a[i] * rows.log_p[i]).sum()

    cloned = torch.stack([loss(i) for i in rows.chosen]).sum()
    return cloned + rows.over_tokens(lambda i: 0.01 * rows.k3(i))


def text2grad(rows: FormulaRollouts) -> Tensor:
    """PPO at λ 0.95 on what each token is paid by the critique, as it was stored."""
    paid = [
        torch.tensor(row["token_rewards"], dtype=torch.float64) - 0.05 * (engine - ref)
        for row, engine, ref in zip(rows.stored, rows.log_engine, rows.log_ref, strict=True)
    ]
    a = rows.estimated(paid)
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))


def t_ppo(rows: FormulaRollouts) -> Tensor:
    """T-PPO: behind the last token of what goes on, the value before it; and the dual clip."""
    per_token, windows = [], []
    for i, row in enumerate(rows.stored):
        values, goes_on = rows.values[i], row["end"] == "unfinished"
        last = [span for span in row["spans"] if span["drawn"]][-1]
        window = last["end"] - last["begin"]
        longer = rows.length(i) + (window // 2 if goes_on else 0)
        paid = torch.zeros(rows.length(i), dtype=torch.float64)
        paid[-1] = values[-1] if goes_on else rows.reward[i]
        whole = generalized(paid, values, max(0.95, 1 - 1 / (0.05 * longer)))
        per_token.append(whole[-window:])
        windows.append(window)
    a = whitened(per_token, less=1)

    def loss(i: int) -> Tensor:
        lost = -clipped_gain(rows.ratio(i)[-windows[i] :], a[i], 0.2, 0.28)
        return torch.where(a[i] < 0, torch.minimum(lost, -10 * a[i]), lost).sum()

    total = torch.stack([loss(i) for i in rows.chosen]).sum()
    count: int = sum(windows[i] for i in rows.chosen)
    return total / count


def nlpo(rows: FormulaRollouts) -> Tensor:
    """NLPO, algorithm 1: ratios of policies renormalized over the masking policy's top-p tokens.

    That policy is the one before the step's first update, as it is at first and once renewed.
    """

    def ratio(i: int) -> Tensor:
        outside, both = ~likeliest(rows, i, 0.9), (rows.log_all[i], rows.log_all_old[i])
        left, before = (each.masked_fill(outside, -math.inf).logsumexp(-1) for each in both)
        # Without a graph, `log_p` is what the stage computed: of the renormalized policy already.
        now = rows.log_p[i] - left if left.requires_grad else rows.log_p[i]
        return (now - rows.log_old[i] + before).exp()

    a = rows.estimated(rows.paid(0.1, rows.log_old), gamma=0.99)
    return rows.over_tokens(lambda i: -clipped_gain(ratio(i), a[i], 0.2, 0.2))


def likeliest(rows: FormulaRollouts, row: int, mass: float) -> Tensor:
    """True at the smallest set of that mass before the step, and at the special tokens."""
    p, order = rows.log_all_old[row].exp().sort(dim=-1, descending=True, stable=True)
    found = torch.zeros_like(p).scatter(-1, order, (p.cumsum(-1) - p < mass).to(p.dtype)) > 0
    found[:, :3] = True
    return found
