"""Problems that are chosen by an earlier run: curves, scores, places, and what is refused."""

import json

import polars as pl
import pytest

from posttrain.data.rankings.base import accuracy_curves
from posttrain.data.rankings.historical_variance import HistoricalVariance
from posttrain.data.rankings.learning_impact import LearningImpact
from posttrain.data.schemas import PROBLEMS, ROLLOUTS
from posttrain.data.tables import read_table, write_table
from posttrain.learning.curriculum.base import ProblemPool
from posttrain.learning.curriculum.in_turn import AllInTurn
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.select.config import SelectConfig
from tasks.select.stage import run

EMPTY = {pl.String: "", pl.Int32: 0, pl.Float64: 0.0, pl.Boolean: True}


def rollouts(*rows):
    """ROLLOUTS of (problem, step, episode, solved), with what else a row says."""
    base = {name: EMPTY.get(kind, []) for name, kind in ROLLOUTS.items()}
    given = [
        base | {"origin": "policy", "problem_id": name, "step": step, "episode": episode}
        | {"solved": solved, **more}
        for name, step, episode, solved, *rest in rows
        for more in [rest[0] if rest else {}]
    ]  # fmt: skip
    return pl.DataFrame(given, schema=ROLLOUTS)


def select(coins_path, folder, rows, **config):
    folder.mkdir()
    write_table(rollouts(*rows), folder / "rollouts.parquet", ROLLOUTS)
    outputs = {"problems": folder / "chosen.parquet", "report": folder / "report.json"}
    metrics = run(
        SelectConfig(**config),
        {"problems": coins_path, "rollouts": folder / "rollouts.parquet"},
        outputs,
        StageContext.quiet(folder / "scratch"),
    )
    report = json.loads(outputs["report"].read_text())
    return read_table(outputs["problems"], PROBLEMS), report, metrics


def test_a_visit_is_a_step_and_counts_what_the_policy_was_judged_for():
    """q in step 1: 1 of 2, in step 4: 0 of 1; what others wrote, and what nobody judged, is out."""
    found = accuracy_curves(
        rollouts(
            ("q", 4, "0", False),
            ("q", 4, "1", None),
            ("q", 1, "0", True),
            # A second segment of that episode.
            ("q", 1, "0", True, {"segment": 1}),
            ("q", 1, "1", False),
            ("q", 1, "2", True, {"origin": "traces"}),
            ("p", 2, "0", None),
        )
    )
    assert found == {"q": [0.5, 0.0]}


def test_the_variance_by_hand():
    """0, 1/2, 1 about 1/2: (1/4 + 0 + 1/4) / 3 = 1/6. Always or never solved: 0."""
    found = HistoricalVariance().scores({"a": [0.0, 0.5, 1.0], "b": [1.0, 1.0], "c": [0.0]})
    assert found == {"a": pytest.approx(1 / 6), "b": 0.0, "c": 0.0}


def test_the_impact_by_hand():
    """Means of the first two visits: 0 and 1/2, so the scale is 1 + 1/4.

    a: (0, 1): 1 - (0 + 1/4) / (5/4) = 4/5; b: (0, 0) is as far away.
    """
    found = LearningImpact().scores({"a": [0.0, 1.0, 0.3], "b": [0.0, 0.0]})
    assert found == {"a": pytest.approx(0.8), "b": pytest.approx(0.8)}
    exact = LearningImpact().scores({"a": [0.25, 0.5], "b": [0.25, 0.5]})
    assert exact == {"a": 1.0, "b": 1.0}


def test_where_all_was_solved_there_is_no_impact():
    with pytest.raises(UserError, match="first 1 visits all problems were solved"):
        LearningImpact().scores({"a": [1.0, 0.0], "b": [1.0]})


def test_the_most_varied_problems_come_first_as_they_were(coins_path, coins, tmp_path):
    ids = [problem.id for problem in coins]
    rows = [
        # Visited once: its variance says nothing.
        (ids[0], 1, "0", True),
        (ids[1], 1, "0", True),
        (ids[1], 2, "0", True),
        (ids[2], 1, "0", True),
        (ids[2], 3, "0", False),
        *((ids[3], step, str(k), k < step) for step in (1, 2) for k in range(3)),
        ("not among the problems", 1, "0", True),
        ("not among the problems", 2, "0", False),
    ]
    chosen, report, metrics = select(coins_path, tmp_path / "a", rows, number=2)
    table = read_table(coins_path, PROBLEMS)
    assert chosen.rows() == [table.row(2), table.row(3)]
    # 1/3 and 2/3 about 1/2.
    assert [each["score"] for each in report["chosen"]] == [0.25, pytest.approx(1 / 36)]
    assert report["chosen"][1]["accuracies"] == pytest.approx([1 / 3, 2 / 3])
    assert (report["visited"], report["ranked"]) == (4, 3)
    assert metrics["select/num_ranked"] == 3
    third, _, _ = select(coins_path, tmp_path / "b", rows, first=3)
    assert third["id"].to_list() == [ids[1]]
    once, _, _ = select(coins_path, tmp_path / "c", rows, least_visits=1, first=3, number=2)
    # Equal scores stay in the table's order.
    assert once["id"].to_list() == ids[:2]
    with pytest.raises(UserError, match="3 of 40 problems were visited 2 times .* places 2 to 4"):
        select(coins_path, tmp_path / "d", rows, first=2, number=3)


def test_chosen_problems_fill_every_step_in_turn(coins_path):
    """Three problems, two draws a step: 0 1, 2 0, 1 2; a second round goes on in the step."""
    stream = AllInTurn().start(ProblemPool(read_table(coins_path, PROBLEMS).head(3)))
    assert [stream.draw(2, seed=0, step=step) for step in range(3)] == [[0, 1], [2, 0], [1, 2]]
    assert stream.draw(1, seed=0, step=0, without=[0]) == [1]
