"""The losses of methods in this folder by their papers, apart from the product's own."""

import torch
from torch import Tensor

from posttrain.methods.formula import FormulaRollouts


def spiral(rows: FormulaRollouts) -> Tensor:
    """Equation 3: what a side still wins less what it usually does, times log-probabilities.

    What it usually does is that of the rounds before, as stored: the rows are of one round.
    """

    def gain(i: int) -> Tensor:
        row = rows.stored[i]
        usual = next(each["value"] for each in row["components"] if each["name"] == "usual")
        won = [2.0 * turn["earned"] for turn in row["turns"]]
        ahead = [
            sum(won[span["turn"] :])
            for span in row["spans"]
            if span["drawn"]
            for _ in range(span["begin"], span["end"])
        ]
        a = torch.tensor([each - 2.0 * usual for each in ahead], dtype=torch.float64)
        return (a * rows.log_p[i]).sum()

    return -torch.stack([gain(i) for i in rows.chosen]).sum() / (len(rows.chosen) * rows.limit)
