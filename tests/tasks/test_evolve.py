"""New problems around failed ones, of a world whose level is the largest number that it hides."""

import json
from typing import ClassVar, Literal

import polars as pl
import pytest

from posttrain.data.schemas import (
    IDENTITY,
    PROBLEMS,
    SOLVE_RATES,
    Problem,
    problems_table,
    with_row_ids,
)
from posttrain.data.sources.world import WorldSource
from posttrain.data.tables import check_table, read_table, write_table
from posttrain.learning.episodes.worlds.base import Posed, World
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.evolve.config import EvolveConfig
from tasks.evolve.stage import run


class Numbers(World):
    """Hides a number of `tens` tens and something."""

    SIZES: ClassVar[tuple[str, ...]] = ("tens",)
    kind: Literal["numbers"] = "numbers"
    tens: int = 1

    def pose(self, draw):
        hidden = 10 * self.tens + draw.randrange(10)
        return Posed(f"a number of {self.tens} tens", {"hidden": hidden})

    def begin(self, facts, seed):
        raise NotImplementedError

    step = best_move = random_move = begin


SOURCE = WorldSource(
    name="numbers",
    world=Numbers(),
    levels=(1, 2, 3),
    graded=("tens",),
    demonstrations=0,
    context={"system": "Guess."},
)


def problem(hidden, *, source="numbers"):
    facts = json.dumps({"hidden": hidden}, separators=(",", ":"))
    asked = f"a number of {hidden // 10} tens"
    context = '{"system":"Guess."}' if source == "numbers" else ""
    return Problem(source, asked, facts, hidden // 10, "played", context=context)


def rate(of, solved, attempts=4):
    found = solved / attempts if attempts else 0.0
    return {
        "parents": [of.id],
        "problem_id": of.id,
        "source": of.source,
        "difficulty": of.difficulty,
        "attempts": attempts,
        "solved": solved,
        "solve_rate": found,
        "low": 0.0,
        "high": 1.0,
        "policy": "p",
    }


def evolved(tmp_path, problems, rates, heldout=(), *, seed=0, **settings):
    schema = {name: kind for name, kind in SOLVE_RATES.items() if name != "id"}
    table = with_row_ids(pl.DataFrame(rates, schema=schema), IDENTITY["solve_rates"])
    inputs = {name: tmp_path / f"{name}.parquet" for name in ("problems", "heldout", "solve_rates")}
    write_table(problems_table(problems), inputs["problems"], PROBLEMS)
    write_table(problems_table(list(heldout)), inputs["heldout"], PROBLEMS)
    write_table(table, inputs["solve_rates"], SOLVE_RATES)
    outputs = {name: tmp_path / name for name in ("problems", "report")}
    config = EvolveConfig(sources=(SOURCE,), **settings)
    metrics = run(config, inputs, outputs, StageContext.quiet(tmp_path / "scratch", seed=seed))
    check_table(outputs["problems"], PROBLEMS)
    return (
        read_table(outputs["problems"], PROBLEMS),
        json.loads(outputs["report"].read_text()),
        metrics,
    )


FAILED, SOMETIMES, ALWAYS, UNKNOWN = map(problem, (20, 25, 28, 13))
FAR = problem(31, source="else")
RATES = [rate(FAILED, 0), rate(SOMETIMES, 3), rate(ALWAYS, 4), rate(FAR, 0), rate(UNKNOWN, 0, 0)]
ALL = [FAILED, SOMETIMES, ALWAYS, UNKNOWN, FAR]


def test_what_failed_has_children_and_what_is_solved_sometimes_stays(tmp_path):
    found, report, metrics = evolved(tmp_path, ALL, RATES, per_failed=6)
    stays, new = (
        found.filter(pl.col("parents").list.len() == 0),
        found.filter(pl.col("parents").list.len() == 1),
    )
    # 3 of 4 is the most that stays; what was always solved or never attempted goes.
    assert stays["id"].to_list() == [SOMETIMES.id]
    assert new["parents"].to_list() == [[FAILED.id]] * 6
    assert found["id"].n_unique() == 7
    assert not set(new["id"]) & {each.id for each in ALL}
    # One level harder or easier at most, and each is of its level.
    assert set(new["difficulty"]) <= {1, 2, 3}
    for row in new.to_dicts():
        assert json.loads(row["answer"])["hidden"] // 10 == row["difficulty"]
        assert row["context"] == FAILED.context
    assert report["failed"] == {"else": 1, "numbers": 1}
    assert report["new"] == {"numbers": 6}
    assert metrics["evolve/num_attempted"] == 4


def test_children_of_one_hang_on_no_other_and_are_never_those_that_are_held_out(tmp_path):
    # All numbers of the level but two are known or held out: just these come, however many asked.
    left = {23, 27}
    heldout = [problem(n) for n in range(21, 30) if n not in {*left, 25, 28}]
    found, _, _ = evolved(tmp_path, ALL, RATES, heldout, per_failed=9, shifts=(0,))
    new = found.filter(pl.col("parents").list.len() == 1)
    assert {json.loads(each)["hidden"] for each in new["answer"]} == left
    alone, _, _ = evolved(tmp_path, [FAILED], RATES[:1], per_failed=1, shifts=(5,))
    both, _, _ = evolved(tmp_path, ALL, RATES, per_failed=1, shifts=(5,))
    # Above the last level there is none.
    assert alone["difficulty"].to_list() == [3]
    assert set(alone["id"]) < set(both["id"])


def test_what_would_leave_nothing_is_refused(tmp_path):
    with pytest.raises(UserError, match="none of the problems has a solve rate"):
        evolved(tmp_path, ALL, [rate(UNKNOWN, 0, 0)])
    with pytest.raises(UserError, match="widen least and most"):
        evolved(tmp_path, ALL, [rate(ALWAYS, 4), rate(FAR, 0)])
    with pytest.raises(ValueError, match="exchange them"):
        EvolveConfig(sources=(SOURCE,), least=0.9)
