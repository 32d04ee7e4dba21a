"""The losses of methods in this folder by their papers, apart from the product's own."""

from torch import Tensor

from posttrain.methods.formula import FormulaRollouts, clipped_gain
from posttrain.methods.pg.formulas import rloo


def kl_inference(rows: FormulaRollouts) -> Tensor:
    """RLOO with the divergence taken off the reward at 0.1."""
    return rloo(rows, beta=0.1)


def dph_rl(rows: FormulaRollouts) -> Tensor:
    """GRPO with the dual clip at 3 and clip-higher, to the recomputed policy."""
    a = rows.standardized(plus=1e-6)

    def loss(i: int) -> Tensor:
        plain = -clipped_gain(rows.ratio(i, rows.log_old), a[i], 0.2, 0.28)
        return plain.clamp(max=-3 * a[i]) if a[i] < 0 else plain

    return rows.over_tokens(loss)
