"""What a row of a table says of its own verifier: parameters by column, in text or in JSON."""

import json

import pytest

from posttrain.data.source_verifiers import scored_by_source
from posttrain.data.sources.base import SourceRequest
from posttrain.data.sources.registry import SOURCES
from posttrain.learning.rewards.verify import metadata_for, verifier_of, verify
from posttrain.stage.errors import UserError


@pytest.fixture
def problems(tmp_path):
    """Read rows as problems, all on one side."""

    def read(*rows, **fields):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        source = SOURCES.parse(
            {"kind": "jsonl", "name": "t", "path": "t", "use": "train", **fields}
        )
        request = SourceRequest(0, 1, 1, 0.5, tmp_path, path=path, metadata_of=metadata_for)
        return scored_by_source(source.read(request), source).train

    return read


def test_every_row_may_have_parameters_of_its_own(problems):
    rows = [
        {"prompt": "Which?", "answer": "B", "choices": ["red", "blue"]},
        {"prompt": "What?", "answer": "A", "choices": '["one", "two", "three"]'},
        {"prompt": "Who?", "answer": "A", "choices": None},
    ]
    made = problems(
        *rows, verifier={"kind": "choice", "answer": "whole"}, parameters={"options": "choices"}
    )
    assert [verifier_of(each).options for each in made] == [
        ("red", "blue"),
        ("one", "two", "three"),
        (),
    ]
    assert verify("blue", made[0]).correct
    assert verify("two", made[1]).reason == "wrong_answer"


def test_a_text_is_a_text_where_the_parameter_is_one(problems):
    (made,) = problems(
        {"prompt": "Count.", "rule": "123"}, verifier="regex", parameters={"pattern": "rule"}
    )
    assert verifier_of(made).pattern == "123"
    # A verifier that does without a reference asks for no answer.
    assert made.answer == ""


@pytest.mark.parametrize(
    ("row", "fields", "sentence"),
    [
        (
            {"prompt": "q", "answer": "B"},
            {"verifier": "choice", "parameters": {"options": "choises"}},
            "there is no column 'choises' for the parameter options",
        ),
        (
            {"prompt": "q", "answer": "B", "x": 3},
            {"verifier": "choice", "parameters": {"options": "x"}},
            "choice.options: input should be a valid tuple, got 3",
        ),
        (
            {"prompt": "q", "answer": "B", "x": 3},
            {"verifier": "choice", "parameters": {"option": "x"}},
            "choice.option: unknown key; did you mean 'options'?",
        ),
        (
            {"prompt": "q", "x": "("},
            {"verifier": "regex", "parameters": {"pattern": "x"}},
            "regex.pattern: this is no regular expression: missing ), unterminated",
        ),
        (
            {"prompt": "q"},
            {"verifier": "exact"},
            "there is no column 'answer' for answer",
        ),
    ],
)
def test_what_a_row_says_wrongly_is_named(problems, row, fields, sentence):
    with pytest.raises(UserError) as error:
        problems(row, **fields)
    assert f"rows.jsonl:1: {sentence}" in str(error.value)
