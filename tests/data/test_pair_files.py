"""Pairs from files in their canonical columns; every mistake is named with its line."""

import csv
import json

import polars as pl
import pytest

from posttrain.data.contexts import PromptContext
from posttrain.data.pair_files import read_pair_file
from posttrain.data.schemas import PAIRS, row_id
from posttrain.stage.errors import UserError

ONE = {"prompt": "2 + 2 =", "chosen": "4", "rejected": "5"}
TWO = {
    "prompt": 'a \u2028 line,\nand "one"',
    "chosen": "good\n\nyes",
    "rejected": "bad",
    "chosen_score": 9,
    "rejected_score": -1.5,
    "label_prob": 0.75,
    "weight": 2,
    "step_start": 3,
    "rationale": "it is",
    "source": "mine",
    "problem_id": "p",
    "split": "heldout",
    "context": PromptContext(system="be brief").written(),
}


def write(folder, suffix, rows):
    path = folder / f"pairs{suffix}"
    if suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif suffix == ".json":
        path.write_text(json.dumps(rows, indent=1))
    elif suffix == ".csv":
        names = list(dict.fromkeys(name for row in rows for name in row))
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
    else:
        pl.DataFrame(rows).write_parquet(path)
    return path


def read(path, **options):
    return read_pair_file(path, source="file", **options)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
def test_each_format_gives_the_same_rows(tmp_path, suffix):
    pairs = read(write(tmp_path, suffix, [ONE, TWO]))
    assert pairs.schema == PAIRS
    first, second = pairs.rows(named=True)
    assert (
        first.items()
        >= {
            **ONE,
            "parents": [f"{tmp_path}/pairs{suffix}:{2 if suffix in ('.csv', '.json') else 1}"],
            "source": "file",
            "problem_id": row_id("file", "2 + 2 ="),
            "split": "train",
            "chosen_score": None,
            "label_prob": 1.0,
            "weight": 1.0,
            "step_start": 0,
            "rationale": "",
        }.items()
    )
    assert second.items() >= TWO.items()


def test_columns_of_a_table_written_here_are_made_anew_and_others_left_out_by_name(tmp_path):
    row = {**ONE, "id": "old", "parents": ["x"], "meta": {"a": 1}}
    path = write(tmp_path, ".jsonl", [row])
    with pytest.raises(UserError, match=r"pairs.jsonl:1: there is a column 'meta', which is none"):
        read(path)
    (found,) = read(path, ignore=["meta"]).rows(named=True)
    assert found["id"] == row_id(found["problem_id"], "4", "5")
    assert found["parents"] == [f"{path}:1"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"choosen": "4"}, "there is a column 'choosen', which is none of prompt, chosen"),
        ({"chosen": ""}, "chosen is empty; a pair has prompt, chosen and rejected"),
        ({"chosen": None}, "chosen is empty"),
        ({"chosen": ["a"]}, r"chosen must be text, got \['a'\]"),
        ({"chosen": 4}, "chosen must be text, got 4"),
        ({"chosen": "\ud800"}, "chosen holds half a character"),
        ({"chosen": "5 "}, "chosen and rejected are the same text; drop the row"),
        ({"context": "no JSON"}, "context must be JSON, as tables here have it"),
        ({"split": "test"}, "split must be train or heldout, got 'test'"),
        ({"chosen_score": "high"}, "chosen_score must be a number, got 'high'"),
        ({"chosen_score": True}, "chosen_score must be a number, got True"),
        ({"chosen_score": float("inf")}, "chosen_score must be a number, got inf"),
        ({"label_prob": 1.2}, "label_prob must be a number from 0 to 1, got 1.2"),
        ({"weight": -1}, "weight must be a number, got -1"),
        ({"weight": 0}, "weight must be above 0"),
        ({"step_start": 1.5}, "step_start must be a whole number"),
    ],
    ids=str,
)
def test_a_row_that_is_no_pair_is_named_by_its_line(tmp_path, change, sentence):
    with pytest.raises(UserError, match=f"pairs.jsonl:2: {sentence}"):
        read(write(tmp_path, ".jsonl", [ONE, {**ONE, **change}]))


def test_a_column_that_is_missing(tmp_path):
    with pytest.raises(UserError, match="pairs.jsonl:1: rejected is not there"):
        read(write(tmp_path, ".jsonl", [{"prompt": "p", "chosen": "c"}]))


LINES = {
    ".jsonl": ('{"prompt": 1\n', r"pairs.jsonl:1: not JSON"),
    ".json": (
        '[\n {"prompt": "p", "chosen": "a", "rejected": "b"},\n\n {"a": }\n]',
        ".json:4: not",
    ),
    ".csv": ('prompt,chosen,rejected\n"a\nb",c,d\np,c\n', ".csv:4: 2 values for 3 columns"),
    ".parquet": ("PAR1", ": not a readable parquet file"),
}


@pytest.mark.parametrize("suffix", LINES)
def test_a_file_that_cannot_be_read_is_named_by_its_line(tmp_path, suffix):
    text, sentence = LINES[suffix]
    path = tmp_path / f"pairs{suffix}"
    path.write_text(text)
    with pytest.raises(UserError, match=sentence):
        read(path)


def test_rows_of_a_list_and_of_quoted_text_have_the_line_in_which_they_begin(tmp_path):
    listed = tmp_path / "pairs.json"
    listed.write_text('[{"prompt": "p",\n"chosen": "a", "rejected": "b"},\n\n{"prompt":\n"p"}]')
    with pytest.raises(UserError, match="pairs.json:4: chosen is not there"):
        read(listed)
    quoted = tmp_path / "pairs.csv"
    quoted.write_text('prompt,chosen,rejected\n"a\nb",c,d\np,,d\n')
    with pytest.raises(UserError, match="pairs.csv:4: chosen is empty"):
        read(quoted)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("pairs.md", "x", "rows are read from .jsonl, .json, .csv, .tsv, .txt, .parquet, packed"),
        ("pairs.jsonl", "", "there are no pairs in it"),
        ("pairs.json", "[]", "there are no pairs in it"),
        ("pairs.json", "{}", "a .json file of rows is a list of objects"),
        ("pairs.json", "[3]", "a row must be a JSON object, got 3"),
        ("pairs.json", "[" * 100_000, "nested too deeply"),
        ("pairs.csv", 'prompt,chosen,rejected\n"a', "not CSV"),
    ],
)
def test_a_file_without_pairs(tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=sentence):
        read(tmp_path / name)


def test_a_folder_or_nothing_at_all(tmp_path):
    with pytest.raises(UserError, match="is a directory"):
        read(tmp_path)
    with pytest.raises(UserError, match="is not there; give the path of one file of pairs"):
        read(tmp_path / "none.csv")


def test_text_that_is_not_utf_8(tmp_path):
    (tmp_path / "pairs.csv").write_bytes(b"prompt,chosen,rejected\n\xff,a,b\n")
    with pytest.raises(UserError, match="not UTF-8 text, at byte 24"):
        read(tmp_path / "pairs.csv")
