"""The losses of methods in this folder by their papers, apart from the product's own.

A turn is what the policy says at once. Statistics are over all rollouts that the step trains on,
sums over those of one update.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from posttrain.methods.formula import FormulaRollouts, clipped_gain, deviation, mean


def paid(rows: FormulaRollouts, i: int) -> list[float]:
    """What the environment paid for each turn of a row."""
    return [turn["earned"] for turn in rows.stored[i]["turns"]]


def returns(rewards: list[float], gamma: float) -> list[float]:
    """What a turn and those after it were paid, discounted by turns."""
    found, following = [], 0.0
    for reward in reversed(rewards):
        following = reward + gamma * following
        found.append(following)
    return found[::-1]


def by_tokens(rows: FormulaRollouts, i: int, turns: list[float]) -> Tensor:
    """The number of its turn for each drawn token of a row."""
    spans = [span for span in rows.stored[i]["spans"] if span["drawn"]]
    per_token = [turns[span["turn"]] for span in spans for _ in range(span["begin"], span["end"])]
    return torch.tensor(per_token, dtype=torch.float64)


def among_like(
    rows: FormulaRollouts,
    numbers: list[list[float]],
    like: Callable[[int, int], object],
    plus: float,
) -> list[list[float]]:
    """(x - mean) / (std + plus) among the turns of a group that are alike; 0 of one by itself."""
    cells: dict[object, list[tuple[int, int]]] = {}
    for i, turns in enumerate(numbers):
        for turn in range(len(turns)):
            cells.setdefault((rows.group[i], like(i, turn)), []).append((i, turn))
    found = [[0.0] * len(turns) for turns in numbers]
    for cell in cells.values():
        group = [numbers[i][turn] for i, turn in cell]
        if max(group) - min(group) < 1e-12:
            continue
        for i, turn in cell:
            found[i][turn] = (numbers[i][turn] - mean(group)) / (deviation(group) + plus)
    return found


def gigpo(rows: FormulaRollouts) -> Tensor:
    """Equations 3, 6, 7, 8 and 9 at ω = 1."""
    sums = [sum(paid(rows, i)) for i in range(len(rows.reward))]
    whole = rows.standardized(plus=1e-6, rewards=sums)
    after = [returns(paid(rows, i), 0.95) for i in range(len(sums))]
    keys = [[turn["key"] for turn in row["turns"]] for row in rows.stored]
    step = among_like(rows, after, lambda i, turn: keys[i][turn], 1e-6)

    def loss(i: int) -> Tensor:
        a = by_tokens(rows, i, [whole[i] + each for each in step[i]])
        return -clipped_gain(rows.ratio(i), a, 0.2, 0.2) + 0.01 * rows.k3(i)

    return rows.over_tokens(loss)
