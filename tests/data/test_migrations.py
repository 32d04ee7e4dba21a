"""Tables that 0.1 wrote are read as tables of today; those of a newer format are refused."""

from pathlib import Path

import polars as pl
import pytest

from posttrain.data.migrations import FORMAT_KEY, FORMATS, MIGRATIONS
from posttrain.data.schemas import PAIRS, PROBLEMS, ROLLOUTS, SCHEMAS, SOLVE_RATES
from posttrain.data.tables import check_table, read_table, write_table
from posttrain.learning.episodes.episode import Span
from posttrain.learning.rl.store import rollouts_table, stored_groups
from posttrain.learning.rollouts.scoring import problems_of
from posttrain.stage.errors import UserError

OLD = Path(__file__).parent / "tables_0_1"
"""Written by the code of 0.1: rollouts of two steps, one cut off, one that had no grade."""


def test_rollouts_of_0_1_become_segments_of_one_turn():
    assert check_table(OLD / "rollouts.parquet", ROLLOUTS) == 8
    table = read_table(OLD / "rollouts.parquet", ROLLOUTS)
    assert table.schema == ROLLOUTS
    steps = dict(stored_groups(table))
    assert [[len(group) for group in groups] for groups in steps.values()] == [[4, 2], [2]]
    right, cut, unjudged, wrong = steps[1][0]
    assert right.token_ids == (1, 5, 6, 7, 8, 2)
    assert right.spans == (Span(0, 3, 0, drawn=False), Span(3, 6, 0, drawn=True))
    assert right.logprobs == (-0.25, -0.5, -0.75)
    assert (right.end, cut.end) == ("over", "tokens")
    assert (right.reward, right.solved, right.components) == (1.0, True, (("verifier", 1.0),))
    assert (cut.reward, cut.solved, cut.components) == (0.0, False, (("verifier", 0.5),))
    assert (unjudged.reward, unjudged.solved) == (None, None)
    assert unjudged.components == (("verifier", None),)
    assert [each.episode for each in (right, cut, unjudged, wrong)] == [f"aa/{n}" for n in range(4)]
    # What 0.1 called an advantage is not what was learned from.
    assert right.advantages == ()
    assert [group[0].trained for group in steps[1]] == [True, False]
    assert steps[2][0][0].versions == (1,)


def test_problems_of_0_1_stood_nowhere():
    old = pl.read_parquet(OLD / "problems.parquet")
    table = read_table(OLD / "problems.parquet", PROBLEMS)
    assert table.schema == PROBLEMS
    assert table.select(old.columns).equals(old)
    assert table.select("origin_file", "origin_line").rows() == [("", 0)] * 2
    assert [problem.id for problem in problems_of(table)] == old["id"].to_list()


def test_pairs_of_0_1_have_no_scores_and_are_certain():
    old = pl.read_parquet(OLD / "pairs.parquet")
    table = read_table(OLD / "pairs.parquet", PAIRS)
    assert table.schema == PAIRS
    assert table.select(old.columns).equals(old)
    added = table.drop(old.columns).rows(named=True)
    assert (
        added
        == [
            {
                "chosen_score": None,
                "rejected_score": None,
                "label_prob": 1.0,
                "rationale": "",
                "step_start": 0,
                "weight": 1.0,
                "context": "",
            }
        ]
        * 2
    )


def test_rows_keep_the_ids_that_they_had():
    old = pl.read_parquet(OLD / "rollouts.parquet", columns=["id", "parents"])
    assert read_table(OLD / "rollouts.parquet", ROLLOUTS, columns=["id", "parents"]).equals(old)


def test_a_migrated_table_is_one_of_today(tmp_path):
    table = read_table(OLD / "rollouts.parquet", ROLLOUTS)
    write_table(table, tmp_path / "new.parquet", ROLLOUTS)
    assert pl.read_parquet_metadata(tmp_path / "new.parquet")[FORMAT_KEY] == "6"
    assert read_table(tmp_path / "new.parquet", ROLLOUTS).equals(table)
    rows = [(step, each) for step, groups in stored_groups(table) for g in groups for each in g]
    made = rollouts_table(rows)
    assert made.drop("id").equals(table.drop("id"))


def test_a_table_that_says_no_format_is_of_the_first(tmp_path):
    table = pl.DataFrame(schema=SOLVE_RATES)
    table.write_parquet(tmp_path / "old.parquet")
    assert read_table(tmp_path / "old.parquet", SOLVE_RATES).equals(table)
    write_table(table, tmp_path / "new.parquet", SOLVE_RATES)
    assert pl.read_parquet_metadata(tmp_path / "new.parquet")[FORMAT_KEY] == "1"


def test_a_newer_format_is_refused(tmp_path):
    frame = pl.DataFrame(schema=ROLLOUTS)
    frame.write_parquet(tmp_path / "r.parquet", metadata={FORMAT_KEY: "7"})
    with pytest.raises(UserError, match="is of format 7, .* rollouts up to 6; install a newer"):
        read_table(tmp_path / "r.parquet", ROLLOUTS)


def test_an_old_table_that_lacks_a_column_of_its_format_is_refused(tmp_path):
    pl.read_parquet(OLD / "rollouts.parquet").drop("reward").write_parquet(tmp_path / "r.parquet")
    with pytest.raises(UserError, match="there is no column 'reward'"):
        check_table(tmp_path / "r.parquet", ROLLOUTS)


def test_every_older_format_can_be_migrated():
    assert FORMATS.keys() <= SCHEMAS.keys()
    wanted = {(kind, number) for kind, present in FORMATS.items() for number in range(1, present)}
    assert set(MIGRATIONS) == wanted
