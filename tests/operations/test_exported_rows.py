"""Rows as other tools expect them."""

import json

import polars as pl
import pyarrow.parquet as pq

from posttrain.data.schemas import PROBLEMS, Completion, Problem, completions_table, problems_table
from posttrain.operations.exported_rows import for_others, sessions, write_for_others

BROUGHT = Problem("q", "2 + 3 =", "5", 1, "", '{"n": 2}', origin_file="q.jsonl", origin_line=4)
MADE = Problem("sums", "1 + 1 =", "2", 0, "exact")


def test_what_is_absent_is_null_and_json_is_a_struct():
    found = for_others(problems_table([BROUGHT, MADE]))
    assert found["verifier"].to_list() == [None, "exact"]
    assert found["origin_file"].to_list() == ["q.jsonl", None]
    assert found["origin_line"].to_list() == [4, None]
    assert found["metadata"].to_list() == [{"n": 2}, {"n": None}]
    assert found["context"].to_list() == [None, None]
    assert found["difficulty"].to_list() == [1, 0]


def test_a_written_file_is_a_data_set_of_plain_types(tmp_path):
    import datasets

    path = tmp_path / "problems.parquet"
    frame = for_others(problems_table([BROUGHT, MADE]))
    write_for_others(frame, path)
    read = datasets.load_dataset(
        "parquet", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert read.to_list() == frame.to_dicts()
    assert read.features["prompt"].dtype == "string"
    assert type(read.features["parents"]).__name__ == "List"
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    assert column.has_offset_index
    assert column.has_column_index
    assert list(pl.read_parquet(path).columns) == list(PROBLEMS)


def test_a_rollout_is_a_session_of_what_it_read_and_drew():
    row = {
        "id": "r1", "step": 4, "reward": 0.5, "token_ids": [1, 2, 3, 4],
        "spans": [
            {"begin": 0, "end": 2, "turn": 0, "drawn": False},
            {"begin": 2, "end": 4, "turn": 0, "drawn": True},
        ],
    }  # fmt: skip
    ((name, text),) = sessions(pl.DataFrame([row]), lambda ids: " ".join(map(str, ids)))
    assert name == "r1"
    assert list(map(json.loads, text.splitlines())) == [
        {"type": "session", "harness": "posttrain", "id": "r1", "step": 4, "reward": 0.5},
        {"type": "message", "message": {"role": "user", "content": "1 2"}},
        {"type": "message", "message": {"role": "assistant", "content": "3 4"}},
    ]


def test_a_completion_is_a_session_of_its_messages():
    table = completions_table([Completion(MADE, "2", "teacher", 1.0, True, "correct")])
    ((_, text),) = sessions(table, str)
    head, *said = map(json.loads, text.splitlines())
    assert head["score"] == 1.0
    assert [each["message"]["content"] for each in said] == ["1 + 1 =", "2"]
