"""The losses of methods in this folder by their papers, apart from the product's own."""

from torch import Tensor

from posttrain.methods.formula import FormulaRollouts
from posttrain.methods.pg.formulas import rloo


def kl_inference(rows: FormulaRollouts) -> Tensor:
    """RLOO with the divergence taken off the reward at 0.1."""
    return rloo(rows, beta=0.1)
