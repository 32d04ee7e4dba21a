"""Kinds of artifacts: those that ship, and one of a task of one's own."""

import pickle

import polars as pl
import pytest

from posttrain.data.schemas import SCHEMAS
from posttrain.data.tables import check_table, schema_of, write_table
from posttrain.stage.artifact_kinds import ARTIFACT_KINDS, ArtifactKind, kind_named
from posttrain.stage.errors import UserError


def rubrics_schema():
    return pl.Schema({"id": pl.String, "criterion": pl.String})


RUBRICS = ArtifactKind("graded_rubrics", suffix=".parquet", shape="table", schema=rubrics_schema)


def test_a_kind_is_its_name():
    assert all(kind == name == str(kind) for name, kind in ARTIFACT_KINDS.items())
    assert kind_named("checkpoint") is ArtifactKind.CHECKPOINT
    assert [n for n, kind in ARTIFACT_KINDS.items() if kind.is_directory] == [
        "checkpoint",
        "reward_model",
    ]
    inside = {"tokenizer", "template", "verifier"}
    assert {n for n, kind in ARTIFACT_KINDS.items() if kind.is_inside} == inside


def test_a_kind_goes_to_another_process_whole():
    sent = pickle.loads(pickle.dumps(RUBRICS))
    assert (sent, sent.suffix, sent.shape, sent.rank) == ("graded_rubrics", ".parquet", "table", 9)
    assert sent.schema is rubrics_schema


def test_a_table_of_ones_own_is_checked_by_its_schema(tmp_path):
    path = tmp_path / "graded_rubrics.parquet"
    frame = pl.DataFrame({"id": ["a"], "criterion": ["short"]})
    write_table(frame, path, schema_of(RUBRICS))
    assert check_table(path, schema_of(kind_named("graded_rubrics"))) == 1
    frame.rename({"criterion": "criterium"}).write_parquet(path)
    with pytest.raises(UserError, match="no column 'criterion'; did you mean 'criterium'"):
        check_table(path, schema_of(RUBRICS))


def test_a_table_that_does_not_ship_needs_a_schema():
    assert schema_of(ArtifactKind.PAIRS) == SCHEMAS["pairs"]
    with pytest.raises(UserError, match="'notes' are tables without a schema; give the kind one"):
        schema_of(ArtifactKind("notes", suffix=".parquet", shape="table"))


def test_of_a_kind_that_nobody_declared_the_name_is_known():
    unknown = kind_named("heard_of")
    assert (unknown, unknown.suffix, unknown.shape) == ("heard_of", "", "file")


def test_a_name_alone_is_the_kind_that_was_declared():
    assert ArtifactKind("graded_rubrics") is RUBRICS
    assert kind_named("graded_rubrics") is RUBRICS


@pytest.mark.parametrize(
    "other",
    [
        {"suffix": ".json", "shape": "report"},
        {"suffix": ".parquet", "shape": "table", "schema": rubrics_schema},
        {"suffix": ".parquet", "shape": "table", "rank": 1},
        {"suffix": ".txt"},
    ],
)
def test_two_kinds_of_one_name_are_refused(other):
    again = ArtifactKind("problems", suffix=".parquet", shape="table")
    assert (again, again.shape) == (ArtifactKind.PROBLEMS, "table")
    with pytest.raises(ValueError, match="there is an artifact kind 'problems' already: suffix"):
        ArtifactKind("problems", **other)
