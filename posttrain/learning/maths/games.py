"""Games of two whose payoffs are opposite: made of comparisons, and solved by regret matching."""

from functools import lru_cache

import torch
from torch import Tensor


def equilibrium(
    payoff_RC: Tensor, *, tolerance: float = 1e-3, rounds: int = 5000
) -> tuple[Tensor, Tensor]:
    """Find mixed strategies of which neither side can gain by leaving its own.

    Both sides, by turns, play what they regret not to have played: with R the sum of regrets, kept
    at 0 and above, each is played in proportion to R and the last regret once more, all alike where
    none is regretted; the average of what was played, round t counting t² times, tends to an
    equilibrium. Counterfactual regret minimization (CFR) is this at every decision of a game, and
    in a game of one decision a side it is all of it. Source: Hart and Mas-Colell, A Simple Adaptive
    Procedure Leading to Correlated Equilibrium, 2000; Zinkevich et al., Regret Minimization in
    Games with Incomplete Information, 2007; the floor at 0: Tammelin, arXiv 1407.5042 (CFR+); the
    last regret once more, and the average: Farina et al., arXiv 2007.14358.

    Args:
        payoff_RC: What the side of the rows wins, and the other side loses.
        tolerance: Gap to end at: what both sides could gain together by their best replies.
        rounds: Most rounds.

    Returns:
        Probabilities of the rows ``[R]`` and of the columns ``[C]``, float64.

    """
    payoff_RC = payoff_RC.double()
    row_R, column_C = (torch.full((size,), 1 / size).double() for size in payoff_RC.shape)
    regrets_R, regrets_C = torch.zeros_like(row_R), torch.zeros_like(column_C)
    total_R, total_C = torch.zeros_like(row_R), torch.zeros_like(column_C)
    for number in range(1, rounds + 1):
        row_R, regrets_R = _reply(row_R, regrets_R, payoff_RC @ column_C)
        column_C, regrets_C = _reply(column_C, regrets_C, -(row_R @ payoff_RC))
        total_R, total_C = total_R + number**2 * row_R, total_C + number**2 * column_C
        mean_R, mean_C = total_R / total_R.sum(), total_C / total_C.sum()
        if gap(payoff_RC, mean_R, mean_C) <= tolerance:
            break
    return mean_R, mean_C


def _reply(played_A: Tensor, regrets_A: Tensor, values_A: Tensor) -> tuple[Tensor, Tensor]:
    """Regret what was not played at these values, and play in proportion to positive regrets."""
    gained_A = values_A - played_A @ values_A
    regrets_A = (regrets_A + gained_A).clamp_min(0.0)
    foreseen_A = (regrets_A + gained_A).clamp_min(0.0)
    total = foreseen_A.sum()
    even_A = torch.full_like(regrets_A, 1 / len(regrets_A))
    return (foreseen_A / total if total > 0 else even_A), regrets_A


def gap(payoff_RC: Tensor, row_R: Tensor, column_C: Tensor) -> float:
    """Compute what both sides could gain together by their best replies; 0 at an equilibrium.

    Args:
        payoff_RC: What the side of the rows wins.
        row_R: How it plays.
        column_C: How the other side plays.

    Returns:
        A number of at least 0.

    """
    return float((payoff_RC @ column_C).max() - (row_R @ payoff_RC).min())


def payoffs(wins_NN: Tensor, weights_NS: Tensor) -> Tensor:
    """Average preferences between answers into those between strategies.

    Args:
        wins_NN: How often the answer of a row is preferred to that of a column; NaN where nobody
            says.
        weights_NS: How much each answer counts in each strategy.

    Returns:
        ``[S, S]``, of which opposite entries add up to 1; 0.5 where nobody says.

    """
    told_NN = (~wins_NN.isnan()).to(wins_NN)
    mass_SS = weights_NS.T @ told_NN @ weights_NS
    won_SS = weights_NS.T @ wins_NN.nan_to_num(0.0) @ weights_NS
    payoff_SS = (won_SS / mass_SS.clamp_min(1e-12)).where(mass_SS > 0, 0.5)
    return 0.5 + (payoff_SS - payoff_SS.T) / 2


def played_among(payoff_SS: Tensor) -> Tensor:
    """Find how often each strategy is played at an equilibrium of one against another.

    Args:
        payoff_SS: Of `payoffs`.

    Returns:
        Probabilities ``[S]``, float64. Games that were solved are remembered.

    """
    rows = tuple(tuple(row) for row in payoff_SS.tolist())
    played = _remembered(rows)
    return torch.tensor(played, dtype=torch.float64)


def to_be_played(played_S: Tensor, shares_S: Tensor, *, least: float, floor: float) -> Tensor:
    """Compute how much more often strategies are to be played than they are, ``log σ/p``.

    Args:
        played_S: How often an equilibrium plays each, σ.
        shares_S: How often somebody does, p.
        least: What σ counts at least, above 0.
        floor: What p counts at least, above 0.

    Returns:
        A number for each; what weighs p by its exponential plays σ.

    """
    aimed_S = played_S.clamp_min(least)
    present_S = shares_S.clamp_min(floor)
    return (aimed_S / present_S).log()


@lru_cache(maxsize=4096)
def _remembered(payoff: tuple[tuple[float, ...], ...]) -> tuple[float, ...]:
    row_S, _ = equilibrium(torch.tensor(payoff, dtype=torch.float64) - 0.5)
    return tuple(row_S.tolist())
