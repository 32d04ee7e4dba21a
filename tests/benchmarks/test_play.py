"""The figures of worlds: every world has its row, and what is measured is what it says."""

import json

import pytest

from benchmarks.play import bounds
from posttrain.learning.episodes.posed import lacking, posed_problem, worlds
from posttrain.learning.episodes.worlds.guess import Guess


@pytest.mark.parametrize("kind", worlds())
def test_every_world_has_a_row_with_its_size_knobs(kind):
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in bounds.PAGE.read_text().splitlines()
        if line.startswith(f"| `{kind}` |")
    ]
    assert len(rows) == 1, f"run: python -m benchmarks.play.bounds {kind}"
    ((*_, size, _random, _script, _source),) = rows
    assert size == ", ".join(f"`{name}`" for name in worlds()[kind].SIZES)
    if not lacking(worlds()[kind]):
        assert kind in json.loads(bounds.FIGURES.read_text())["worlds"]


def test_bounds_are_those_of_a_world_that_can_be_reckoned():
    # One of three numbers in two guesses: the script always halves; by chance 5 of 9 find it.
    told = bounds.measured(Guess(size=3, guesses=2), 60)
    assert (told["script"]["mean"], told["script"]["solved"], told["turns"]) == (1.0, 1.0, 2)
    assert told["random"]["low"] < 5 / 9 < told["random"]["high"]
    assert told["random"]["failed"] == 0


def test_problems_are_those_of_their_seeds():
    assert posed_problem(Guess(), 4) == posed_problem(Guess(), 4)
    assert len({posed_problem(Guess(), seed).prompt for seed in range(20)}) > 5


def test_only_the_table_of_a_page_is_replaced():
    lines = bounds.table({})
    page = "\n".join(["Above |", *lines[:2], "| `gone` | x |", "", "| other |", "|---|", ""])
    assert bounds.with_table(page, lines).split("\n") == [
        "Above |", *lines, "", "| other |", "|---|", ""
    ]  # fmt: skip
