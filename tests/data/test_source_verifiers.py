"""What the recipe says of a verifier stands beside the problems; what a row says, in the row."""

import json

import polars as pl
import pytest

from posttrain.data.schemas import PROBLEMS, Completion, Problem, completions_table, problems_table
from posttrain.data.source_verifiers import (
    read_scored_problems,
    scored_by_source,
    write_verifiers,
)
from posttrain.data.sources.base import SourceRows
from posttrain.data.sources.registry import SOURCES
from posttrain.data.tables import write_table
from posttrain.data.teachers.base import Solution
from posttrain.learning.rewards.verifiers.choice import ChoiceVerifier
from posttrain.learning.rewards.verify import metadata_for, verifier_of, verify
from posttrain.learning.rollouts.scoring import problems_of, read_problems
from posttrain.stage.errors import UserError


def source(verifier, name="quiz"):
    return SOURCES.parse({"kind": "jsonl", "name": name, "path": "x", "verifier": verifier})


def judge(model):
    return {"kind": "judge", "endpoint": {"base_url": "http://localhost:1", "model": model}}


def made(verifier, *problems):
    rows = SourceRows(train=list(problems), solutions=[Solution(problems[0], "so", "me")])
    return scored_by_source(rows, source(verifier))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (judge("small"), judge("large")),
        ("exact", {"kind": "numeric", "answer": "boxed"}),
    ],
)
def test_another_verifier_changes_no_byte_of_problems_and_solutions(one, other, tmp_path):
    def written(verifier):
        part = source(verifier).verifier
        # As the recipe's generators give them: with verifier and parameters in each row.
        given = Problem("quiz", "2 + 3 =", "5", 1, part.kind, metadata_for(part))
        rows = made(verifier, given)
        assert verifier_of(rows.train[0]) == part
        completion = Completion(rows.solutions[0].problem, "so", "me", 1.0, True, "correct")
        write_verifiers(tmp_path / "verifiers.json", {"quiz": part})
        tables = problems_table(rows.train), completions_table([completion])
        return tables, (tmp_path / "verifiers.json").read_bytes()

    (problems, solutions), said = written(one)
    (same_problems, same_solutions), not_said = written(other)
    assert problems.equals(same_problems)
    assert solutions.equals(same_solutions)
    assert said != not_said
    assert solutions["problem_id"][0] == problems["id"][0]


def test_what_comes_back_is_what_went_out(tmp_path):
    own = json.dumps({"choice": {"options": ["red", "blue"]}})
    rows = made(
        {"kind": "choice", "answer": "whole"},
        Problem("quiz", "Which?", "B", 1, "", own),
        Problem("quiz", "Who?", "A", 1, ""),
    )
    write_table(problems_table(rows.train), tmp_path / "p.parquet", PROBLEMS)
    write_verifiers(tmp_path / "v.json", {"quiz": ChoiceVerifier(answer="whole")})
    one, two = read_problems(tmp_path / "p.parquet", tmp_path / "v.json")
    assert (one.id, two.id) == tuple(problem.id for problem in rows.train)
    assert verifier_of(one) == ChoiceVerifier(answer="whole", options=("red", "blue"))
    assert verifier_of(two) == ChoiceVerifier(answer="whole")
    assert verify("blue", one).correct
    assert verify("blue", two).reason == "not_a_choice"


def test_rows_of_older_tables_are_scored_by_the_verifier_that_they_name(tmp_path):
    old = Problem("sums", "2 + 3 =", "5", 2, "exact")
    assert old.id == "72378daa8a9b7231"  # as in 0.1
    write_table(problems_table([old]), tmp_path / "p.parquet", PROBLEMS)
    write_verifiers(tmp_path / "v.json", {"sums": ChoiceVerifier()})
    for verifiers in (None, tmp_path / "v.json"):
        (found,) = read_problems(tmp_path / "p.parquet", verifiers)
        assert found == old
        assert verify("#### 5", found).correct


def test_a_row_that_names_another_verifier_than_its_source_keeps_it():
    rows = made("exact", Problem("quiz", "q", "5", 1, "numeric"))
    assert (rows.train[0].verifier, rows.train[0].scored_by) == ("numeric", "")
    assert verify("#### 5.0", rows.train[0]).correct


def test_problems_without_their_verifiers_are_refused_with_the_remedy(tmp_path):
    rows = made("exact", Problem("quiz", "q", "5", 1, "exact"))
    write_table(problems_table(rows.train), tmp_path / "p.parquet", PROBLEMS)
    with pytest.raises(UserError, match="1 problems name no verifier, and no verifiers are connec"):
        read_scored_problems(tmp_path / "p.parquet", None)
    write_verifiers(tmp_path / "v.json", {"other": ChoiceVerifier()})
    with pytest.raises(UserError, match="v.json has none for source 'quiz'; connect the verifiers"):
        read_scored_problems(tmp_path / "p.parquet", tmp_path / "v.json")
    with pytest.raises(UserError, match="names no verifier, and its source's was not read with it"):
        verify("5", problems_of(pl.read_parquet(tmp_path / "p.parquet"))[0])
