"""The losses of methods in this folder by their papers, apart from the product's own."""

import torch
from torch import Tensor

from posttrain.methods.formula import FormulaRollouts, clipped_gain, whitened


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


def cory(rows: FormulaRollouts) -> Tensor:
    """PPO of one of the two, at what it and the other were paid together."""
    per_token = []
    for i, reward in enumerate(rows.reward):
        paid = -0.05 * (rows.log_engine[i] - rows.log_ref[i])
        paid[-1] += reward
        values = [*rows.values[i].tolist(), 0.0]
        deltas = [float(p) + values[t + 1] - values[t] for t, p in enumerate(paid)]
        per_token.append(
            torch.tensor(
                [
                    sum(0.95 ** (k - t) * deltas[k] for k in range(t, len(deltas)))
                    for t in range(len(deltas))
                ],
                dtype=torch.float64,
            )
        )
    a = whitened(per_token, less=1)
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))


def rlccf(rows: FormulaRollouts) -> Tensor:
    """GRPO of one of the voters, at 1 for what was elected and 0 for all else, as stored."""
    a = rows.standardized()
    return rows.over_answers(
        lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2) + 0.04 * rows.k3(i)
    )


def comas(rows: FormulaRollouts) -> Tensor:
    """REINFORCE++ of one of the policies, over its solutions, evaluations and scores alike."""
    paid = [
        torch.full((rows.length(i),), reward, dtype=torch.float64)
        for i, reward in enumerate(rows.reward)
    ]
    a = whitened(paid, less=0)
    # What was cut off is in the statistics, and bears no loss.
    ended = [i for i in rows.chosen if rows.stored[i]["end"] == "over"]
    gains = [clipped_gain(rows.ratio(i), a[i], 0.2, 0.2).mean() for i in ended]
    return -torch.stack(gains).mean()


def rlsp(rows: FormulaRollouts) -> Tensor:
    """PPO at λ 1; right or wrong, an answer pays for being short, and for stating nothing."""
    per_token = []
    for i in range(len(rows.reward)):
        row = rows.stored[i]
        end = float(row["solved"]) + 0.5 * ("#### " in row["text"]) - 12 / rows.length(i)
        apart = rows.log_engine[i] - rows.log_ref[i]
        behind = torch.stack([apart[t:].sum() for t in range(rows.length(i))])
        per_token.append(end - 0.05 * behind - rows.values[i])
    a = whitened(per_token, less=1)
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))
