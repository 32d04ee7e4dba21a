"""Equilibria that are known by hand, found by regret matching."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posttrain.learning.maths.games import equilibrium


def test_rock_paper_scissors_is_a_third_each():
    row, column = equilibrium(torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]))
    assert row.tolist() == pytest.approx([1 / 3] * 3, abs=1e-3)
    assert column.tolist() == pytest.approx([1 / 3] * 3, abs=1e-3)


def test_a_circle_of_unequal_wins_is_played_by_the_win_across():
    """a beats b by 0.4, b beats c by 0.4, c beats a by 0.3: no answer gains where a, b, c are
    played as 0.4 : 0.3 : 0.4, each by what the other two win of each other."""
    payoff = torch.tensor([[0.0, 0.4, -0.3], [-0.4, 0.0, 0.4], [0.3, -0.4, 0.0]])
    for side in equilibrium(payoff, tolerance=1e-4):
        assert side.tolist() == pytest.approx([4 / 11, 3 / 11, 4 / 11], abs=2e-3)


def test_a_game_of_two_different_sides():
    """Rows p (3, -1) + (1 - p) (-1, 1): equal at p = 1/3, and so is q; the value is 1/3."""
    payoff = torch.tensor([[3.0, -1.0], [-1.0, 1.0]])
    row, column = equilibrium(payoff, tolerance=1e-3)
    assert row.tolist() == pytest.approx([1 / 3, 2 / 3], abs=1e-2)
    assert column.tolist() == pytest.approx([1 / 3, 2 / 3], abs=1e-2)
    assert float(row.double() @ payoff.double() @ column) == pytest.approx(1 / 3, abs=1e-3)


def test_what_is_beaten_by_all_is_not_played():
    payoff = torch.tensor([[0.0, 1.0, 1.0], [-1.0, 0.0, 1.0], [-1.0, -1.0, 0.0]])
    row, _ = equilibrium(payoff)
    assert row.tolist() == pytest.approx([1.0, 0.0, 0.0], abs=1e-3)


def kuhn():
    """Kuhn's poker of three cards and an ante of 1, by plans: what a side does at each card."""
    # First: pass and fold, pass and call, bet. Second: at a pass and at a bet, bet or call at 1.
    firsts = list(product(("fold", "call", "bet"), repeat=3))
    seconds = list(product(product((0, 1), repeat=2), repeat=3))
    deals = [(a, b) for a in range(3) for b in range(3) if a != b]

    def won(a, b, first, second):
        higher = 1 if a > b else -1
        at_pass, at_bet = second[b]
        if first[a] == "bet":
            return 2 * higher if at_bet else 1
        if not at_pass:
            return higher
        return 2 * higher if first[a] == "call" else -1

    rows = [
        [sum(won(a, b, first, second) for a, b in deals) / len(deals) for second in seconds]
        for first in firsts
    ]
    return torch.tensor(rows, dtype=torch.float64), firsts


def test_kuhn_poker_is_lost_by_who_begins():
    """Kuhn 1950: the value is -1/18; who begins never bets the middle card, and bets the highest
    three times as often as the lowest."""
    payoff, firsts = kuhn()
    row, column = equilibrium(payoff, tolerance=2e-3)
    assert float(row @ payoff @ column) == pytest.approx(-1 / 18, abs=2e-3)
    bets = [
        sum(float(p) for p, plan in zip(row, firsts, strict=True) if plan[card] == "bet")
        for card in range(3)
    ]
    assert bets[1] == pytest.approx(0.0, abs=0.05)
    assert bets[2] == pytest.approx(3 * bets[0], abs=0.1)
    assert bets[0] < 1 / 3 + 0.05


@given(st.lists(st.integers(-4, 4), min_size=6, max_size=6))
def test_nobody_gains_by_leaving(numbers):
    payoff = torch.tensor(numbers, dtype=torch.float64).reshape(2, 3)
    row, column = equilibrium(payoff, tolerance=0.02)
    assert float((payoff @ column).max() - (row @ payoff).min()) <= 0.02
    assert float(row.sum()) == pytest.approx(1.0)
    assert min(*row.tolist(), *column.tolist()) >= 0
