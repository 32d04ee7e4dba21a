"""A shop is searched, looked at and bought from; a purchase is graded by hand-made sums."""

import json
from random import Random

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.episodes.environments.base import POLICY
from posttrain.learning.episodes.script import play_script
from posttrain.learning.episodes.worlds.shop import Shop, worth_of


def item(number, kind, attributes, price):
    return {
        "number": number, "type": kind, "attributes": attributes.split(),
        "options": ["red", "blue"], "price": price,
    }  # fmt: skip


POSED = {
    "items": [
        item("11", "lamp", "soft small new", 30),
        item("12", "lamp", "soft wide new", 60),
        item("13", "cup", "soft small new", 20),
    ],
    "wish": {"type": "lamp", "attributes": ["soft", "small"], "option": "red", "price": 40},
    "shown": 2,
    "turns": 6,
}


def bought(*turns):
    problem = Problem("shop", "", "", 1, "played", metadata=json.dumps({"shop": POSED}))
    lines = iter(turns)
    episode = play_script(Shop(), problem, lambda *_: next(lines), seed=1, most_turns=20)
    told = [ask.new[0].text for each in episode.situations[1:] for ask in each.asks]
    return told, sum(episode.earned(POLICY)), episode.facts()


def test_a_wish_is_found_looked_at_chosen_and_bought():
    told, worth, facts = bought("search lamp small", "look 11", "pick red", "buy")
    assert told == ["11 lamp 30; 12 lamp 60", "soft small new / red blue", "ok"]
    assert (worth, facts) == (1.0, {})


@pytest.mark.parametrize(
    ("turns", "worth"),
    [
        (("look 11", "buy"), 3 / 4),  # no option
        (("look 11", "pick blue", "buy"), 3 / 4),
        (("look 12", "pick red", "buy"), 2 / 4),  # one attribute and the option; too dear
        (("look 13", "pick red", "buy"), 0.0),  # all fits but the type
        (("look 12", "pick red", "look 11", "buy"), 3 / 4),  # what was picked was of another item
        (("search lamp",) * 6, 0.0),
    ],
)
def test_a_purchase_is_worth_the_share_of_wishes_that_it_fits(turns, worth):
    assert bought(*turns)[1] == worth


def test_what_cannot_be_done_is_counted_and_costs_a_turn():
    told, worth, facts = bought(
        "buy", "pick red", "look 99", "search zebra", "look 11", "pick pink"
    )
    assert told == ["no such thing"] * 3 + ["nothing", "soft small new / red blue"]
    assert (worth, facts) == (0.0, {"tool_errors": 5.0})


def test_every_wish_can_be_fulfilled():
    for seed in range(30):
        posed = Shop(items=20).pose(Random(seed)).facts
        wish = posed["wish"]
        assert max(worth_of(each, wish["option"], wish) for each in posed["items"]) == 1.0
