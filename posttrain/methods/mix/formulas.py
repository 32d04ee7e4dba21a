"""The losses of methods in this folder by their papers, apart from the product's own."""

from torch import Tensor

from posttrain.methods.formula import FormulaRollouts, clipped_gain
from posttrain.methods.pg.formulas import dr_grpo


def relift(rows: FormulaRollouts) -> Tensor:
    """ReLIFT's RL is Dr. GRPO's; its fine-tuning is another update."""
    return dr_grpo(rows)


def loss_balance(rows: FormulaRollouts) -> Tensor:
    """GRPO without a divergence; what is rehearsed is looked at elsewhere."""
    a = rows.standardized()
    return rows.over_answers(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))


def kdrl(rows: FormulaRollouts) -> Tensor:
    """KDRL, equation 8: GRPO over tokens, and k2 of the reverse KL to the teacher, annealed."""
    # Steps are stored from 1 on, and the weight falls from the first one on.
    a, made = rows.standardized(), int(rows.stored[0]["step"]) - 1
    weight = 5e-3 + (1e-3 - 5e-3) * min(made, 80) / 80

    def loss(i: int) -> Tensor:
        apart = rows.log_p[i] - rows.log_ref[i]
        return -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2) + weight * apart.square() / 2

    return rows.over_tokens(loss)
