"""The losses of methods in this folder by their papers, apart from the product's own."""

import math

import torch
from torch import Tensor

from posttrain.methods.formula import FormulaRollouts, clipped_gain
from posttrain.methods.pg.formulas import rloo


def kl_inference(rows: FormulaRollouts) -> Tensor:
    """RLOO with the divergence taken off the reward at 0.25."""
    return rloo(rows, beta=0.25)


def demonstration_regularized(rows: FormulaRollouts) -> Tensor:
    """RLOO with the divergence from the cloned policy taken off the reward at 0.1."""
    return rloo(rows, beta=0.1)


def dph_rl(rows: FormulaRollouts) -> Tensor:
    """GRPO with the dual clip at 3 and clip-higher, to the recomputed policy."""
    a = rows.standardized(plus=1e-6)

    def loss(i: int) -> Tensor:
        plain = -clipped_gain(rows.ratio(i, rows.log_old), a[i], 0.2, 0.28)
        return plain.clamp(max=-3 * a[i]) if a[i] < 0 else plain

    return rows.over_tokens(loss)


def correlated_proxies(rows: FormulaRollouts) -> Tensor:
    """The root of chi-squared over whole answers taken off the reward, by its gradient."""
    apart = [float((e - r).sum()) for e, r in zip(rows.log_engine, rows.log_ref, strict=True)]
    excess = [math.exp(min(each, 5.0)) - 1 for each in apart]
    level = max(sum(excess) / len(excess), 1e-2)
    price = [each / math.sqrt(level) for each in excess]
    paid = [reward - 0.2 * each for reward, each in zip(rows.reward, price, strict=True)]
    a = rows.against_others(paid)
    return torch.stack([-a[i] * rows.log_p[i].sum() for i in rows.chosen]).mean()


def alignment_ceiling(rows: FormulaRollouts) -> Tensor:
    """Centered scores, the clip at 0.8 and 1.28 over tokens, and a divergence that is measured."""
    a = rows.centered()
    return rows.over_tokens(
        lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.28) + 1e-6 * rows.k3(i)
    )


def best_of_n_frontier(rows: FormulaRollouts) -> Tensor:
    """The same of what is right."""
    return alignment_ceiling(rows)


def policy_cliff(rows: FormulaRollouts) -> Tensor:
    """GRPO without its divergence, and the surprise of each token paid at 0.02."""
    a = rows.standardized()
    return rows.over_answers(
        lambda i: -clipped_gain(rows.ratio(i), a[i] - 0.02 * rows.log_old[i], 0.2, 0.2)
    )


def constrained_rlhf(rows: FormulaRollouts) -> Tensor:
    """The price of the limit is in the rewards; RLOO with the divergence taken off at 0.1."""
    return rloo(rows, beta=0.1)
