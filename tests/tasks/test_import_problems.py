"""Problems to evaluate on: every row of a file once, with what scores it."""

import json
from dataclasses import replace

import polars as pl
import pytest

from posttrain.data.contexts import PromptContext
from posttrain.learning.rewards.verify import verify
from posttrain.learning.rollouts.scoring import read_problems
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.import_problems import TASK
from tasks.import_problems.stage import run


@pytest.fixture
def imported(tmp_path):
    """Import a file of rows by a source with these fields."""

    def run_on(rows, **source):
        path = tmp_path / "own.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        sources = [{"kind": "jsonl", "name": "own", "path": "own.jsonl", **source}]
        config = TASK.config.parse({"sources": sources}, where="import_problems")
        outputs = {name: tmp_path / f"{name}.out" for name in TASK.outputs}
        told = []
        context = replace(StageContext.quiet(tmp_path / "scratch"), emit=told.append)
        metrics = run(config, {"files.own": path}, outputs, context)
        return outputs, metrics, [each["line"] for each in told if each["kind"] == "note"]

    return run_on


ROWS = [{"question": f"q{n}", "answer": f"a{n}"} for n in range(20)]
COLUMNS = {"columns": {"prompt": "question"}, "verifier": {"kind": "exact", "answer": "last_line"}}


@pytest.mark.parametrize("use", [{}, {"use": "heldout"}])
def test_every_row_is_evaluated_on_by_the_verifier_of_its_source(imported, use):
    outputs, metrics, notes = imported(ROWS, context={"system": "Be brief."}, **COLUMNS, **use)
    problems = read_problems(outputs["problems"], outputs["verifiers"])
    assert [problem.prompt for problem in problems] == [row["question"] for row in ROWS]
    assert [problem.origin_line for problem in problems] == [*range(1, 21)]
    assert PromptContext.read(problems[0].context).system == "Be brief."
    assert verify("I think\na3", problems[3]).correct
    assert not verify("a3\nno", problems[3]).correct
    assert (metrics, notes) == ({"import_problems/num_problems": 20.0}, [])


def test_a_row_that_stands_twice_is_asked_once(imported):
    outputs, metrics, notes = imported([*ROWS, ROWS[4]], **COLUMNS)
    assert pl.read_parquet(outputs["problems"])["prompt"].n_unique() == 20
    assert metrics == {"import_problems/num_problems": 20.0}
    assert notes == ["left out 1 problems that stand there twice"]


@pytest.mark.parametrize(
    ("rows", "source", "sentence"),
    [
        (ROWS, {**COLUMNS, "use": "train"}, "source 'own' gives no problem to evaluate on"),
        (ROWS, {**COLUMNS, "verifier": "numeric"}, "own.jsonl:1: the verifier 'numeric' cannot re"),
        ([], COLUMNS, "own.jsonl: there are no rows in it"),
    ],
)
def test_what_cannot_be_evaluated_on_is_refused(imported, rows, source, sentence):
    with pytest.raises(UserError) as caught:
        imported(rows, **source)
    assert sentence in str(caught.value)


def test_two_sources_want_two_names():
    source = {"kind": "jsonl", "name": "own", "path": "a.jsonl"}
    with pytest.raises(UserError, match="two sources are called 'own'; give each a name of its"):
        TASK.config.parse({"sources": [source, source]}, where="import_problems")


def test_a_generator_that_is_not_there_is_named_by_the_section_that_names_it(tmp_path):
    sources = [
        {"kind": "jsonl", "name": "own", "path": "a.jsonl"},
        {"kind": "reasoning_gym", "name": "chain_sums"},
    ]
    config = TASK.config.parse({"sources": sources}, where="hard_problems")
    with pytest.raises(UserError) as caught:
        config.check_names("hard_problems")
    assert str(caught.value) == (
        "hard_problems.sources.1: reasoning-gym has no generator 'chain_sums'; did you mean"
        " 'chain_sum'?"
    )
    with pytest.raises(UserError, match=r"^import_problems\.sources\.1: reasoning-gym has no"):
        run(config, {}, {}, StageContext.quiet(tmp_path))
