"""Kuhn poker: what hands pay, what each reads, and how good the two scripts are."""

from itertools import product
from random import Random

import pytest

from posttrain.learning.episodes.environments.base import Act
from posttrain.learning.episodes.worlds.kuhn import Kuhn


def begun(*deals, cards=3, errors=0.0):
    return Kuhn().begin({"cards": cards, "deals": [*deals], "errors": errors}, 0)


def after(situation, *moves):
    for move in moves:
        ((role, _),) = situation.asks
        situation = Kuhn().step(situation.state, (Act(role, move),), 0)
    return situation


@pytest.mark.parametrize(
    ("moves", "won"),
    [
        (["check", "check"], 1),
        (["check", "bet", "fold"], -1),
        (["check", "bet", "call"], 2),
        (["bet", "fold"], 1),
        (["bet", "call"], 2),
    ],
)
def test_what_a_hand_pays(moves, won):
    """The policy leads the first hand, with the higher card; in the second all is turned round."""
    one = after(begun([3, 1], [1, 3]), *moves)
    assert one.state["sum"] == won
    over = after(one, *moves)
    assert (over.asks, over.state["sum"]) == ((), 0)
    assert dict(over.earned) == {"policy": 0.5, "opponent": 0.5}
    assert dict(after(begun([3, 1]), *moves).earned) == {
        "policy": float(won > 0),
        "opponent": float(won < 0),
    }


def test_each_reads_its_own_card_and_what_was_shown():
    one = after(begun([3, 1], [2, 3]), "bet")
    assert one.asks[0].role == "opponent"
    assert one.asks[0].new[0].text == "cards 1 to 3. hand 1 of 2, sum 0, card 1: bet"
    called, folded = after(one, "call"), after(one, "fold")
    assert called.asks[0].new[0].text == "shown 1 3; hand 2 of 2, sum -2, card 3: lead"
    assert folded.asks[0].new[0].text == "hand 2 of 2, sum -1, card 3: lead"
    checked = after(called, "check").asks[0].new[0].text
    assert checked == "shown 3 1; hand 2 of 2, sum 2, card 2: check"
    # What cannot be done is the mild move, and counted.
    wrong = after(begun([3, 1], [2, 3]), "call")
    assert (wrong.state["done"], wrong.facts) == ("m", {"tool_errors": 1.0})


def test_cards_of_two_digits_are_shown_whole():
    """The opponent reads its own card first, as the policy does."""
    shown = after(begun([10, 13], [2, 12], cards=13), "bet", "call")
    assert shown.state["shown"] == "10 13"
    assert shown.asks[0].role == "opponent"
    assert shown.asks[0].new[0].text == "shown 13 10; hand 2 of 2, sum 2, card 12: lead"


def test_every_pair_is_dealt_to_both():
    facts = Kuhn().pose(Random(3)).facts
    led, followed = facts["deals"][::2], facts["deals"][1::2]
    assert sorted(map(tuple, led)) == sorted((b, a) for a, b in followed)
    assert all(a != b for a, b in facts["deals"])


def value(*, leads):
    """What a hand pays the script of the policy on average, where the opponent never errs."""
    world, total = Kuhn(), 0.0
    for mine, theirs in product(range(1, 4), repeat=2):
        if mine == theirs:
            continue
        hand = 0 if leads else 1
        deals = [[2, 1]] * hand + [[mine, theirs], [1, 2]]
        start = {**begun(*deals).state, "hand": hand}
        stack = [(start, 1.0)]
        while stack:
            state, weight = stack.pop()
            if state["hand"] > hand:
                total += weight * state["sum"] / 6
                continue
            asked = ("policy", "opponent")[leads != (len(state["done"]) % 2 == 0)]
            for move, chance in _mixed(world, state, asked):
                stack.append((world.step(state, (Act(asked, move),), 0).state, weight * chance))
    return total


def _mixed(world, state, role, tries=3000):
    """Each move with its probability; the opponent's mixed ones as often as they are drawn."""
    if role == "policy":
        return [(world.best_move(state, role, Random(0)), 1.0)]
    draw = Random(1)
    moves = [world.best_move(state, role, draw) for _ in range(tries)]
    return [(move, moves.count(move) / tries) for move in set(moves)]


def test_the_opponent_is_in_equilibrium_and_the_policy_answers_it_best():
    """Of three cards the game is worth -1/18 to who leads; nothing wins more of an equilibrium."""
    assert value(leads=True) == pytest.approx(-1 / 18, abs=0.02)
    assert value(leads=False) == pytest.approx(1 / 18, abs=0.02)
