"""Rows of files of every kind, with the places where they stand, and what cannot be read."""

import gzip
import json

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from posttrain.data.row_files import file_rows, find_row
from posttrain.stage.errors import UserError

ROWS = [{"a": "one", "b": "1"}, {"a": "two\nlines, \u2028", "b": "2"}, {"a": "drei ü", "b": "3"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
CSV = 'a,b\none,1\n"two\nlines, \u2028",2\ndrei ü,3\n'


def zstd(data):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


PACKERS = {"": bytes, ".gz": gzip.compress, ".zst": zstd}
TEXTS = {
    ".jsonl": (LINES, [1, 2, 3]),
    # The list's bracket and every object begin a line of their own.
    ".json": ("[\n" + ",\n".join(map(json.dumps, ROWS)) + "\n]", [2, 3, 4]),
    # A header, and a value over two lines: the third row begins in line 5.
    ".csv": (CSV, [2, 3, 5]),
    ".tsv": (CSV.replace(",1", "\t1").replace(",2", "\t2").replace(",3", "\t3")
             .replace("a,b", "a\tb"), [2, 3, 5]),
}  # fmt: skip


@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize("ending", TEXTS)
def test_every_kind_of_text_gives_the_same_rows_with_their_lines(tmp_path, ending, packed):
    text, lines = TEXTS[ending]
    path = tmp_path / f"rows{ending}{packed}"
    path.write_bytes(PACKERS[packed](text.encode()))
    found = list(file_rows(path, name="mine"))
    assert [row.record for row in found] == ROWS
    assert [row.where for row in found] == [f"mine:{line}" for line in lines]


def test_parquet_rows_have_numbers_and_are_found_again_by_their_row_group(tmp_path):
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=2)
    found = list(file_rows(path))
    assert [(row.number, row.record) for row in found] == [*enumerate(ROWS, 1)]
    assert find_row(path, 3) == '(row group 2, row 1) {"a": "drei ü", "b": "3"}'


def test_a_line_is_found_again_as_it_stands_there(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b'\xef\xbb\xbf{"a": 1}\r\n\n{"a":   2}\n'))
    assert [row.number for row in file_rows(path)] == [1, 3]
    assert find_row(path, 1) == '{"a": 1}'
    assert find_row(path, 3) == '{"a":   2}'
    with pytest.raises(UserError, match="rows.jsonl.gz has no row 9 any more"):
        find_row(path, 9)


def test_a_row_of_a_list_is_found_again_by_its_line(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(TEXTS[".json"][0])
    assert json.loads(find_row(path, 3)) == ROWS[1]


def test_rows_of_a_list_that_share_a_line_are_told_apart_by_their_places(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(ROWS))
    assert [row.number for row in file_rows(path)] == [1, 2, 3]
    assert json.loads(find_row(path, 3)) == ROWS[2]


def test_a_folder_gives_its_files_in_the_order_of_their_names(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.jsonl").write_text('{"a": 3}\n')
    (tmp_path / "a.csv").write_text("a\n1\n2\n")
    (tmp_path / "README.md").write_text("no rows")
    found = list(file_rows(tmp_path, name="folder"))
    assert [(row.where, row.record["a"]) for row in found] == [
        ("folder/a.csv:2", "1"),
        ("folder/a.csv:3", "2"),
        ("folder/in/b.jsonl:1", 3),
    ]
    assert [row.file for row in file_rows(tmp_path, name="f", split="b")] == ["f/in/b.jsonl"]


def test_a_saved_data_set_with_splits_and_one_without(tmp_path):
    import datasets

    part = datasets.Dataset.from_list(ROWS)
    part.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": part, "test": part.select([2])}).save_to_disk(tmp_path / "two")
    assert [row.record for row in file_rows(tmp_path / "one")] == ROWS
    assert [row.where for row in file_rows(tmp_path / "two", name="d", split="test")] == [
        "d/test:1"
    ]
    # Without a split, the one that everybody trains on.
    assert [row.file for row in file_rows(tmp_path / "two", name="d")] == ["d/train"] * 3
    assert json.loads(find_row(tmp_path / "two" / "test", 1)) == ROWS[2]
    with pytest.raises(UserError, match="d: there is no split 'tests'; did you mean 'test'?"):
        list(file_rows(tmp_path / "two", name="d", split="tests"))


def test_lines_of_text(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("one\n\n two \n")
    assert [(r.number, r.record) for r in file_rows(path)] == [
        (1, {"text": "one"}),
        (3, {"text": " two "}),
    ]


BROKEN = {
    "rows.jsonl": [
        (b'{"a": 1}\n{"a": \n', "mine:2: not JSON: Expecting value at column 6"),
        (b"[1]\n", r"mine:1: a row must be a JSON object, got \[1\]"),
        (b'[\n{"a": 1}]\n', "mine:1: not JSON: .* name a file that is one JSON list .json"),
        (b'{"a": "\xff"}\n', "mine:1: not UTF-8 text, at byte 8 of the line"),
        (b'{"a": 1, "a": 2}\n', "mine:1: not a row: the key 'a' stands twice in one object"),
        (b'{"a": ' + b"[" * 99_999, "mine:1: not a row: nested too deeply"),
        (b'{"a": ' + b"1" * 5000 + b"}", "mine:1: not a row: Exceeds the limit"),
    ],
    "rows.json": [
        (b'{"a": 1}\n', "mine:1: a .json file of rows is a list of objects; name a file with one"),
        (b'[{"a": 1},\n{"a": }]', "mine:2: not JSON: Expecting value"),
        (b'[{"a": 1},\n\n3]', "mine:3: a row must be a JSON object, got 3"),
    ],
    "rows.csv": [(b"a,b\n1,2\n1\n", "mine:3: 1 values for 2 columns; quote them")],
    "rows.jsonl.gz": [(b"no gzip", "mine: not a whole gz file"),
                      (gzip.compress(b"x" * 99)[:-9], "mine: not a whole gz file")],
    "rows.jsonl.zst": [(b"no zstd", "mine: not a whole zst file")],
    "rows.parquet": [(b"PAR1", "mine: not a readable parquet file")],
    "rows.xls": [(b"", "mine: rows are read from .jsonl, .json, .csv, .tsv, .txt, .parquet, packed"
                       " with .gz or .zst or not; write one of these")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [(name, data, said) for name, cases in BROKEN.items() for data, said in cases],
    ids=[f"{name}-{n}" for name, cases in BROKEN.items() for n in range(len(cases))],
)
def test_what_cannot_be_read_is_one_sentence_with_file_and_line(tmp_path, name, data, sentence):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=sentence) as refused:
        list(file_rows(tmp_path / name, name="mine"))
    assert "\n" not in str(refused.value)


def test_what_is_not_there_and_an_empty_folder(tmp_path):
    with pytest.raises(UserError, match="none.jsonl is not there; give the path"):
        list(file_rows(tmp_path / "none.jsonl"))
    with pytest.raises(UserError, match="there is no file in it; files of rows end in .jsonl"):
        list(file_rows(tmp_path))
    (tmp_path / "a.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="no file of the split 'test' in it, but a.jsonl is"):
        list(file_rows(tmp_path, split="test"))
    with pytest.raises(UserError, match="one file has no splits; leave split 'x' out"):
        list(file_rows(tmp_path / "a.jsonl", split="x"))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=50)
@given(st.lists(st.dictionaries(st.text(), VALUES, max_size=4), min_size=1, max_size=5))
def test_what_is_written_as_lines_and_as_a_list_comes_back(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("rows")
    (folder / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "r.json").write_text(json.dumps(rows, indent=1))
    for path in folder.iterdir():
        assert [row.record for row in file_rows(path)] == rows
        for row in file_rows(path):
            assert json.loads(find_row(path, row.number)) == row.record


def test_tables_of_polars_are_read_with_nested_columns(tmp_path):
    frame = pl.DataFrame({"m": [[{"role": "user", "content": "hi", "name": None}]]})
    frame.write_parquet(tmp_path / "t.parquet")
    (row,) = file_rows(tmp_path / "t.parquet")
    assert row.record == {"m": [{"role": "user", "content": "hi", "name": None}]}
