"""Tic-tac-toe: moves, lines, what each side earns and reads, and how good best moves are."""

from random import Random

import pytest
from pydantic import ValidationError

from posttrain.learning.episodes.environments.base import Act, Ask, Told
from posttrain.learning.episodes.worlds.tictactoe import TicTacToe


def begun(board, **changes):
    width = changes.get("width", 3)
    facts = {"width": width, "height": len(board) // width, "in_row": 3, "errors": 0.0}
    return TicTacToe().begin({**facts, "board": board, **changes}, 0)


def after(situation, *moves):
    """The moves of both by turns, whoever is asked."""
    for move in moves:
        ((role, _),) = situation.asks
        situation = TicTacToe().step(situation.state, (Act(role, move),), 0)
    return situation


def test_each_side_reads_who_it_is_and_where_it_may_go():
    first = begun("X...O....")
    assert first.asks == (Ask("policy"),)
    answered = after(first, "b")
    told = "3 in a row. O: X X c / d O f / g h i"
    assert answered.asks == (Ask("opponent", (Told("user", told),)),)
    # The rules are told once; it is the same board to both.
    assert after(answered, "c").asks[0].new[0].text == "X: X X O / d O f / g h i"
    assert after(answered, "c", "g", "d").asks[0].new[0].text == "X: X X O / O O f / X h i"


@pytest.mark.parametrize(
    ("board", "moves", "earned"),
    [
        ("XX.OO....", ["c"], {"policy": 1.0}),
        ("XX.OO....", ["i", "f"], {"opponent": 1.0}),
        ("OXXX.OO..", ["e", "h", "i"], {"policy": 0.5, "opponent": 0.5}),
        # The anti-diagonal; and the policy has the second side after an odd number of moves.
        (".XOX..O.X", ["e"], {"policy": 1.0}),
    ],
)
def test_a_line_wins_and_a_full_board_is_a_draw(board, moves, earned):
    over = after(begun(board), *moves)
    assert (over.asks, dict(over.earned)) == ((), earned)


def test_no_line_goes_around_the_edge_of_the_board():
    assert after(begun("..X......", width=3), "a", "d", "h", "e").asks
    assert after(begun("O..X....X.X.", width=4), "b").asks


def test_whoever_names_no_free_cell_loses_the_turn():
    lost = after(begun("X...O...."), "a")
    assert (lost.facts, lost.state["board"]) == ({"tool_errors": 1.0}, "X...O....")
    assert lost.asks[0].new[0].text.endswith("O: X b c / d O f / g h i")
    # Seven turns were left; where all are lost, nobody has won.
    over = after(begun("X...O...."), *["?"] * 7)
    assert dict(over.earned) == {"policy": 0.5, "opponent": 0.5}


@pytest.mark.parametrize("opening", [0, 1])
def test_best_moves_of_both_draw_and_lose_to_nobody(opening):
    """Tic-tac-toe is a draw, whoever begins and wherever: the first mark decides nothing."""
    world = TicTacToe(opening=opening, opponent_errors=0.0)
    for seed in range(6):
        draw = Random(seed)
        situation = world.begin(world.pose(draw).facts, 0)
        while situation.asks:
            role = situation.asks[0].role
            move = world.best_move(situation.state, role, draw)
            situation = world.step(situation.state, (Act(role, move),), 0)
        assert dict(situation.earned) == {"policy": 0.5, "opponent": 0.5}


def test_a_best_move_wins_at_once_and_sees_to_the_end():
    world = TicTacToe()
    for seed in range(5):
        assert world.best_move(begun("XX.OO....").state, "policy", Random(seed)) == "c"
        # X threatens c; O must go there, or lose.
        state = after(begun("X...O...."), "b").state
        assert world.best_move(state, "opponent", Random(seed)) == "c"


def test_an_opponent_errs_as_often_as_the_problem_says():
    world = TicTacToe()
    state = after(begun("X...O....", errors=0.6), "b").state
    draw = Random(0)
    kept = sum(world.best_move(state, "opponent", draw) == "c" for _ in range(2000)) / 2000
    # One of the six free cells is the best, by chance too: 0.4 + 0.6 / 6.
    assert kept == pytest.approx(0.5, abs=0.04)


def test_what_is_too_large_is_refused():
    for wrong, said in (
        ({"width": 4, "height": 4}, "4 x 4 has 16 cells"),
        ({"in_row": 4}, "fits in no line"),
        ({"opening": 5}, "may be over"),
    ):
        with pytest.raises(ValidationError, match=said):
            TicTacToe(**wrong)
