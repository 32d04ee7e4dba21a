"""The figures of worlds: every world has its row, and what is measured is what it says."""

import json
from xml.etree import ElementTree

import pytest

from benchmarks.play import __main__ as play
from benchmarks.play import bounds
from benchmarks.play.picture import drawn
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


def _seed(sft, rl):
    def estimate(value):
        return {"value": value, "low": value - 0.05, "high": value + 0.05}

    change = {"parent": "sft", "difference": estimate(rl - sft)}
    policies = [
        {"name": name, "pass_at": [estimate(value)], "change": change if name == "rl" else None}
        for name, value in (("base", 0.125), ("sft", sft), ("rl", rl))
    ]
    read = play.success({"policies": policies, "num_problems": 9})
    return {"seconds": 61.4, **read}


@pytest.mark.parametrize(
    ("sft", "rl", "told"),
    [
        (0.5, 0.75, (True, True)),
        (0.5, 0.5625, (True, False)),  # 6 points, and the intervals meet
        (0.125, 0.875, (False, True)),
        (0.75, 0.9375, (False, True)),
    ],
)
def test_an_arena_is_judged_by_its_contract_and_by_what_rl_gained(sft, rl, told):
    assert play.verdict(_seed(sft, rl)) == told


def test_the_table_and_the_picture_have_every_seed():
    bound = {"mean": 0.3, "solved": 0.25}
    machine = {"processor": "P", "cores": 2, "torch": "2"}
    seeds = {"0": _seed(0.5, 0.75), "1": _seed(0.5, 0.625)}
    figures = {
        "guess": {
            "date": "2026-01-02", "machine": machine, "world": {"kind": "guess", "size": 8},
            "random": bound, "script": {**bound, "solved": 1.0}, "seeds": seeds,
        }
    }  # fmt: skip
    _, _, first, second, _, summary = play.lines(figures)
    assert "| size 8 | 25% | 100% | 0 | 12.5 [7.5, 17.5] | 50.0 [45.0, 55.0] |" in first
    assert "| +25.0 [+20.0, +30.0] | held | yes | 61 |" in first
    assert "| held | yes |" in second
    # Student's quantile for one degree of freedom is 12.706; the mean is 18.75, s / sqrt(2) 6.25.
    assert "RL over SFT +18.8 points, paired over 2 seeds [-60.7, +98.2]" in summary
    picture = ElementTree.fromstring(drawn(figures))
    assert len(picture.findall("{*}circle")) == 2 * 2 + 2
    assert len([each for each in picture.findall("{*}line") if each.get("class") == "bound"]) == 3


def test_a_recipe_is_given_its_seed(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text("flow: flows.play\nrun: {threads: 1}\nsft: {}\n")
    play.set_seed(file, 2)
    assert file.read_text() == "flow: flows.play\nrun: {seed: 2, threads: 1}\nsft: {}\n"
    file.write_text("flow: flows.play\n")
    with pytest.raises(SystemExit, match="write its section run"):
        play.set_seed(file, 2)
