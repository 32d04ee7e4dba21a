"""Files that `posttrain rows -o` writes."""

import json

import polars as pl
import pytest

from posttrain.cli.rows import _write_rows as write_rows
from posttrain.data.schemas import Completion, Problem, completions_table
from posttrain.stage.errors import UserError

MADE = Problem("sums", "1 + 1 =", "2", 0, "exact")


@pytest.fixture
def answers():
    return completions_table(
        [Completion(MADE, text, "t", None, None, "late") for text in ("2", "3")]
    )


def test_each_layout_is_written_and_counted(answers, tmp_path, capsys):
    table = tmp_path / "answers.parquet"
    write_rows(answers, tmp_path / "same.parquet", layout="table", table=table)
    write_rows(answers, tmp_path / "hub.parquet", layout="hub", table=table)
    write_rows(answers, tmp_path / "sessions", layout="sts", table=table)
    assert pl.read_parquet(tmp_path / "same.parquet").equals(answers)
    assert pl.read_parquet(tmp_path / "hub.parquet")["context"].to_list() == [None, None]
    first = tmp_path / "sessions" / f"{answers['id'][0]}.jsonl"
    lines = list(map(json.loads, first.read_text().splitlines()))
    assert [line["type"] for line in lines] == ["session", "message", "message"]
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"2 lines written to {tmp_path / 'same.parquet'}"
    assert said[2] == f"2 sessions written to {tmp_path / 'sessions'}"


@pytest.mark.parametrize(
    ("layout", "name", "sentence"),
    [
        ("hub", "folder", "it is a folder; name a file"),
        ("sts", "file", "it is a file; name a folder"),
    ],
)
def test_a_folder_for_a_file_and_a_file_for_a_folder_are_refused(
    answers, tmp_path, layout, name, sentence
):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=sentence):
        write_rows(answers, tmp_path / name, layout=layout, table=tmp_path / "a.parquet")


def test_rows_that_are_no_sessions_are_refused(tmp_path):
    rows = pl.DataFrame({"step": [1], "metric": ["loss"], "value": [0.5]})
    with pytest.raises(UserError, match="curve holds no sessions; --as sts is for tables of roll"):
        write_rows(rows, tmp_path / "out", layout="sts", table=tmp_path / "curve")
