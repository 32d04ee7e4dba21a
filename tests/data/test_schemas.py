import doctest
import hashlib
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.data import schemas as records
from posttrain.data.schemas import (
    COMPLETIONS,
    IDENTITY,
    PROBLEMS,
    SCHEMAS,
    Completion,
    Problem,
    completions_table,
    problems_table,
    row_id,
    with_row_ids,
)
from posttrain.stage.artifact_kinds import ARTIFACT_KINDS

_PART = st.one_of(st.text(), st.integers(), st.lists(st.integers(), max_size=3))


def test_an_id_is_the_head_of_a_sha256_over_the_documented_encoding():
    encoding = "s3:\u00e9x" + "i2:-4" + "l4:7,10"
    assert row_id("\u00e9x", -4, [7, 10]) == hashlib.sha256(encoding.encode()).hexdigest()[:16]


@given(st.lists(_PART, max_size=4), st.lists(_PART, max_size=4))
def test_different_parts_have_different_ids(left, right):
    assert (row_id(*left) == row_id(*right)) == (left == right)


@pytest.mark.parametrize(
    ("left", "right"),
    [(("1",), (1,)), (("ab", "c"), ("a", "bc")), (("",), ()), (([1, 2],), ("1,2",))],
)
def test_kinds_and_borders_of_parts_count(left, right):
    assert row_id(*left) != row_id(*right)


@pytest.mark.parametrize("part", [0.5, None, True])
def test_what_has_no_single_text_form_cannot_name_a_row(part):
    with pytest.raises(TypeError, match="a row id is made of"):
        row_id(part)


@given(
    st.lists(st.tuples(st.text(), st.integers(-(2**31), 2**31 - 1), st.lists(st.integers(0, 9))))
)
def test_whole_columns_get_the_ids_of_their_rows(rows):
    schema = {"a": pl.String, "b": pl.Int32, "c": pl.List(pl.Int32)}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    named = with_row_ids(frame, ["a", "b", "c"])
    assert named["id"].to_list() == [row_id(*row) for row in rows]
    assert named.drop("id").equals(frame)


def test_an_id_already_there_is_replaced_in_place():
    frame = pl.DataFrame({"a": ["x"], "id": ["old"]})
    assert with_row_ids(frame, ["a"]).row(0) == ("x", row_id("x"))


def test_nulls_and_floats_cannot_name_rows():
    with pytest.raises(ValueError, match="hold nulls"):
        with_row_ids(pl.DataFrame({"a": ["x", None]}), ["a"])
    with pytest.raises(ValueError, match="column 'a' is Float64"):
        with_row_ids(pl.DataFrame({"a": [0.5]}), ["a"])


def test_every_table_artifact_has_a_schema_and_nothing_else_has():
    tables = {name for name, kind in ARTIFACT_KINDS.items() if kind.suffix == ".parquet"}
    assert tables == {name for name, kind in ARTIFACT_KINDS.items() if kind.shape == "table"}
    assert set(SCHEMAS) == tables


def test_identity_columns_exist_and_leave_annotations_out():
    for kind, columns in IDENTITY.items():
        assert set(columns) <= set(SCHEMAS[kind])
        assert not {"difficulty", "score", "reward", "advantage"} & set(columns)


def test_a_problem_keeps_its_id_when_only_its_difficulty_changes():
    easy = Problem("sums", "2 + 3 =", "5", difficulty=2, verifier="exact")
    hard = Problem("sums", "2 + 3 =", "5", difficulty=9, verifier="exact")
    other = Problem("sums", "2 + 3 =", "6", difficulty=2, verifier="exact")
    assert easy.id == hard.id != other.id


def test_dataclasses_and_columns_give_the_same_ids():
    problem = Problem("sums", "2 + 3 =", "5", difficulty=2, verifier="exact")
    answer = Completion(problem, "#### 5", "teacher", 1.0, True, "correct")
    problems, completions = problems_table([problem]), completions_table([answer])
    assert with_row_ids(problems, IDENTITY["problems"]).equals(problems)
    assert with_row_ids(completions, IDENTITY["completions"]).equals(completions)
    assert completions.row(0, named=True) == {
        "id": answer.id,
        "parents": [problem.id],
        "problem_id": problem.id,
        "source": "sums",
        "difficulty": 2,
        "prompt": "2 + 3 =",
        "text": "#### 5",
        "generator": "teacher",
        "verifier": "exact",
        "score": 1.0,
        "verified": True,
        "reason": "correct",
        "weight": 1.0,
        "context": "",
    }


def test_a_context_is_part_of_a_problem_and_none_leaves_the_id_as_it_was():
    plain = Problem("sums", "2 + 3 =", "5", difficulty=2, verifier="exact")
    told = replace(plain, context='{"system":"Be brief."}')
    assert plain.id == row_id("sums", "2 + 3 =", "5", "exact")
    assert told.id == row_id("sums", "2 + 3 =", "5", "exact", '{"system":"Be brief."}') != plain.id
    table = problems_table([plain, told])
    assert with_row_ids(table, IDENTITY["problems"]).equals(table)


def test_empty_tables_keep_their_schemas():
    assert problems_table([]).schema == PROBLEMS
    assert completions_table([]).schema == COMPLETIONS


def test_the_examples_in_the_docstrings_hold():
    assert doctest.testmod(records).failed == 0


@pytest.mark.parametrize(("file", "named"), [("", "reasoning_gym"), ("a.jsonl", "numeric")])
def test_a_problem_that_names_no_verifier_has_the_id_that_it_had_by_default(file, named):
    before = Problem("sums", "2 + 3 =", "5", 1, named, origin_file=file)
    now = replace(before, verifier="")
    assert now.id == before.id == row_id("sums", "2 + 3 =", "5", named)
    other = replace(now, verifier="exact")
    table = problems_table([now, other])
    assert table["id"].to_list() == [now.id, row_id("sums", "2 + 3 =", "5", "exact")]
    assert with_row_ids(table.drop("id"), IDENTITY["problems"])["id"].equals(table["id"])
