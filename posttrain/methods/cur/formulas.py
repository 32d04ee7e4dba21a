"""The losses of methods in this folder by their papers, apart from the product's own."""

from torch import Tensor

from posttrain.methods.formula import FormulaRollouts, clipped_gain, deviation, mean
from posttrain.methods.pg.formulas import rloo


def self_low_likelihood(rows: FormulaRollouts) -> Tensor:
    """GRPO as verl has it, with the dual clip at 3, and no divergence."""
    a = rows.standardized(plus=1e-6)

    def loss(i: int) -> Tensor:
        plain = -clipped_gain(rows.ratio(i, rows.log_old), a[i], 0.2, 0.2)
        return plain.clamp(max=-3 * a[i]) if a[i] < 0 else plain

    return rows.over_tokens(loss)


def guru(rows: FormulaRollouts) -> Tensor:
    """GRPO as verl has it, with the dual clip at 10, and no divergence."""
    a = rows.standardized(plus=1e-6)

    def loss(i: int) -> Tensor:
        plain = -clipped_gain(rows.ratio(i, rows.log_old), a[i], 0.2, 0.2)
        return plain.clamp(max=-10 * a[i]) if a[i] < 0 else plain

    return rows.over_tokens(loss)


def sparkle(rows: FormulaRollouts) -> Tensor:
    """GRPO as verl has it, the dual clip at 3, with 0.01 of k3 that is held at 10."""
    a = rows.standardized(plus=1e-6)

    def loss(i: int) -> Tensor:
        plain = -clipped_gain(rows.ratio(i, rows.log_old), a[i], 0.2, 0.2)
        held = plain.clamp(max=-3 * a[i]) if a[i] < 0 else plain
        return held + 0.01 * rows.k3(i).clamp(max=10.0)

    return rows.over_tokens(loss)


def rising_rationality(rows: FormulaRollouts) -> Tensor:
    """GRPO of either of the two without a divergence, at what it was paid."""
    a = rows.standardized()
    return rows.over_answers(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))


def cog_rethinker(rows: FormulaRollouts) -> Tensor:
    """DAPO's loss among the policy's own, and the likelihood of what two more passes got right."""
    own = [i for i, row in enumerate(rows.stored) if row["origin"] == "policy"]
    paid = rows.docked_for_length()

    def advantage(i: int) -> float:
        group = [paid[j] for j in rows.members(i) if j in own]
        alike = max(group) == min(group)
        return 0.0 if alike else (paid[i] - mean(group)) / deviation(group)

    def loss(i: int) -> Tensor:
        if i not in own:
            return -rows.log_p[i]
        return -clipped_gain(rows.ratio(i), advantage(i), 0.2, 0.28)

    return rows.over_tokens(loss)


def eva(rows: FormulaRollouts) -> Tensor:
    """RLOO, over groups of old problems and of new ones alike."""
    return rloo(rows)
