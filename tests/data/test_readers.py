"""Rows of problems from other people's files: what is read, and a sentence for all that is not."""

import json
import os
import pickle

import polars as pl
import pytest

from posttrain.data.sources.columns import ProblemRow
from posttrain.stage.errors import UserError
from tasks.synthesize.config import SynthesizeConfig

GOOD = {"prompt": "2 + 3 =", "answer": "5"}
ROW = ProblemRow("2 + 3 =", "5", "", 1)


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.fixture
def parquet(tmp_path):
    """Write a parquet file of columns."""

    def write(**columns):
        pl.DataFrame(columns).write_parquet(tmp_path / "rows.parquet")
        return tmp_path / "rows.parquet"

    return write


def test_columns_are_mapped_and_values_become_trimmed_text(read, lines):
    rows = [
        {"question": " 2 + 3 = ", "answer": 5, "steps": "#### 5", "level": 2, "unused": [1]},
        {"question": "0 + 0 =", "answer": 0, "steps": None, "level": "3", "unused": None},
    ]
    columns = {"prompt": "question", "solution": "steps", "difficulty": "level"}
    assert read("jsonl", lines(*rows), columns=columns) == [
        ProblemRow("2 + 3 =", "5", "#### 5", 2),
        ProblemRow("0 + 0 =", "0", "", 3),
    ]


def test_columns_with_our_names_need_no_mapping(read, lines):
    row = {**GOOD, "solution": "so\n#### 5", "difficulty": 4}
    assert read("jsonl", lines(row)) == [ProblemRow("2 + 3 =", "5", "so\n#### 5", 4)]


def test_blank_lines_a_byte_order_mark_and_windows_line_ends_do_not_matter(read, lines):
    text = json.dumps(GOOD)
    assert read("jsonl", lines(b"\xef\xbb\xbf" + text.encode() + b"\r", "", text)) == [ROW, ROW]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            '{"prompt": ',
            "not JSON: Expecting value at column 11; each line must be one JSON object",
        ),
        ("[1, 2]", "a row must be a JSON object, got '[1, 2]'"),
        ("[" * 100_000, "not a row: nested too deeply"),
        (b'{"prompt": "\xe9"}', "not UTF-8 text, at byte 13 of the line"),
        ('{"question": "1 + 1", "answr": "2"}', "there is no column 'prompt' for prompt"),
        (
            '{"prompt": "1 + 1", "answr": "2"}',
            "there is no column 'answer' for answer; did you mean 'answr'?",
        ),
        (
            '{"prompt": "1 + 1", "answer": null}',
            "the answer ('answer') is empty; fill it or drop the row",
        ),
        (
            '{"prompt": "1 + 1", "answer": " "}',
            "the answer ('answer') is empty; fill it or drop the row",
        ),
        (
            '{"prompt": "1 + 1", "answer": NaN}',
            "the answer ('answer') is empty; fill it or drop the row",
        ),
        (
            '{"prompt": "", "answer": "2"}',
            "the prompt ('prompt') is empty; fill it or drop the row",
        ),
        (
            '{"prompt": "1 + 1", "answer": ["2"]}',
            "the answer ('answer') is ['2']; map a column that holds text or numbers",
        ),
        (
            '{"prompt": "\\ud800", "answer": "2"}',
            "the prompt ('prompt') holds half a character: '\\ud800'",
        ),
        (
            '{"prompt": "1 + 1", "answer": "2", "difficulty": "hard"}',
            "difficulty must be a whole number from 0 to 999,999,999, got 'hard'",
        ),
        (
            '{"prompt": "1 + 1", "answer": "2", "difficulty": 10000000000}',
            "difficulty must be a whole number from 0 to 999,999,999, got '10000000000'",
        ),
    ],
)
def test_a_bad_line_is_named_by_file_and_line(refusal, lines, line, complaint):
    path = lines(GOOD, "", line)
    assert refusal("jsonl", path) == f"{path}:3: {complaint}"


def test_a_mapped_column_must_be_there_even_if_it_is_optional(refusal, lines):
    path = lines({**GOOD, "solutions": "x"})
    assert refusal("jsonl", path, columns={"solution": "solution"}) == (
        f"{path}:1: there is no column 'solution' for solution; did you mean 'solutions'?"
    )


def test_a_mapping_of_a_name_that_is_not_ours_is_refused():
    source = {"kind": "jsonl", "name": "own", "path": "a.jsonl", "columns": {"promt": "question"}}
    with pytest.raises(UserError) as caught:
        SynthesizeConfig.parse({"sources": [source]}, where="synthesize")
    assert "it maps 'promt', which is none of prompt, answer, solution, difficulty, weight" in str(
        caught.value
    )
    assert str(caught.value).endswith("did you mean 'prompt'?")


@pytest.mark.parametrize("rows", [[], [""], ["", " "]])
def test_a_file_without_rows_is_refused(refusal, lines, rows):
    path = lines(*rows)
    assert refusal("jsonl", path) == f"{path}: there are no rows in it"


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_what_is_no_file_is_refused(refusal, tmp_path, kind):
    gone = tmp_path / f"rows*.{kind}"
    assert refusal(kind, gone) == f"{gone} is not there; give the path of one file"
    assert refusal(kind, tmp_path) == (
        f"{tmp_path} is a directory, and a file is needed here; give the path of one file"
    )


def test_parquet_is_read_with_numbers_as_text_and_gaps_as_nothing(read, parquet):
    path = parquet(prompt=["a", "b"], answer=[5, 7], solution=[None, "x"], difficulty=[2.0, None])
    assert read("parquet", path) == [ProblemRow("a", "5", "", 2), ProblemRow("b", "7", "x", 1)]


def test_parquet_rows_are_named_by_number(refusal, parquet):
    path = parquet(question=["a", "b"], answer=["1", None])
    assert refusal("parquet", path, columns={"prompt": "question"}) == (
        f"{path}, row 2: the answer ('answer') is empty; fill it or drop the row"
    )
    assert refusal("parquet", path, columns={"prompt": "questions"}) == (
        f"{path}, row 1: there is no column 'questions' for prompt; did you mean 'question'?"
    )
    path = parquet(prompt=[b"\x00"], answer=["1"])
    assert refusal("parquet", path).startswith(f"{path}, row 1: the prompt ('prompt') is b'\\x00';")
    path = parquet(prompt=pl.Series([], dtype=pl.String), answer=pl.Series([], dtype=pl.String))
    assert refusal("parquet", path) == f"{path}: there are no rows in it"


def test_what_is_no_parquet_is_refused_and_never_unpickled(refusal, parquet, tmp_path):
    whole = parquet(prompt=["a"] * 100, answer=["1"] * 100).read_bytes()
    damaged = bytearray(whole)
    damaged[4:40] = b"\xff" * 36
    trap = pickle.dumps(Trap(str(tmp_path / "sprung")))
    for name, content in {
        "empty": b"",
        "pickle": trap,
        "cut": whole[:-20],
        "damaged": damaged,
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert refusal("parquet", path).startswith(f"{path}: not a readable parquet file: ")
    assert not (tmp_path / "sprung").exists()
