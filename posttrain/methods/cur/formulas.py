"""The losses of methods in this folder by their papers, apart from the product's own."""

from torch import Tensor

from posttrain.methods.formula import FormulaRollouts, clipped_gain


def self_low_likelihood(rows: FormulaRollouts) -> Tensor:
    """GRPO as verl has it, with the dual clip at 3, and no divergence."""
    a = rows.standardized(plus=1e-6)

    def loss(i: int) -> Tensor:
        plain = -clipped_gain(rows.ratio(i, rows.log_old), a[i], 0.2, 0.2)
        return plain.clamp(max=-3 * a[i]) if a[i] < 0 else plain

    return rows.over_tokens(loss)


def sparkle(rows: FormulaRollouts) -> Tensor:
    """GRPO as verl has it, the dual clip at 3, with 0.01 of k3 that is held at 10."""
    a = rows.standardized(plus=1e-6)

    def loss(i: int) -> Tensor:
        plain = -clipped_gain(rows.ratio(i, rows.log_old), a[i], 0.2, 0.2)
        held = plain.clamp(max=-3 * a[i]) if a[i] < 0 else plain
        return held + 0.01 * rows.k3(i).clamp(max=10.0)

    return rows.over_tokens(loss)
