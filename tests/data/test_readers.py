"""Rows of problems from other people's files: what is read, and a sentence for all that is not."""

import http.server
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time

import datasets
import polars as pl
import pytest

from posttrain.data.readers import Row, read_rows
from posttrain.errors import UserError

GOOD = {"prompt": "2 + 3 =", "answer": "5"}
ROW = Row("2 + 3 =", "5", "", 1)


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.fixture
def read(tmp_path):
    """Read with columns that keep their names unless a test maps them."""

    def rows(kind, place, **options):
        return read_rows(kind, place, **{"columns": {}, "scratch": tmp_path / "scratch", **options})

    return rows


@pytest.fixture
def refusal(read):
    """The one sentence with which reading is refused."""

    def sentence(kind, place, **options):
        with pytest.raises(UserError) as caught:
            read(kind, place, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return sentence


@pytest.fixture
def lines(tmp_path):
    """Write a JSONL file of rows, of literal lines, or of bytes."""

    def write(*rows, name="rows.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        raw = (row if isinstance(row, str | bytes) else json.dumps(row) for row in rows)
        path.write_bytes(b"".join((r.encode() if isinstance(r, str) else r) + b"\n" for r in raw))
        return path

    return write


@pytest.fixture
def parquet(tmp_path):
    """Write a parquet file of columns."""

    def write(**columns):
        pl.DataFrame(columns).write_parquet(tmp_path / "rows.parquet")
        return tmp_path / "rows.parquet"

    return write


@pytest.fixture
def saved(tmp_path):
    """Save a data set, or one per split, as the library does; return its folder."""

    def save(name="saved", **splits):
        tables = {split: datasets.Dataset.from_list(rows) for split, rows in splits.items()}
        whole = tables.pop("only") if "only" in tables else datasets.DatasetDict(tables)
        whole.save_to_disk(str(tmp_path / name))
        return tmp_path / name

    return save


def test_columns_are_mapped_and_values_become_trimmed_text(read, lines):
    rows = [
        {"question": " 2 + 3 = ", "answer": 5, "steps": "#### 5", "level": 2, "unused": [1]},
        {"question": "0 + 0 =", "answer": 0, "steps": None, "level": "3", "unused": None},
    ]
    columns = {"prompt": "question", "solution": "steps", "difficulty": "level"}
    assert read("jsonl", lines(*rows), columns=columns) == [
        Row("2 + 3 =", "5", "#### 5", 2),
        Row("0 + 0 =", "0", "", 3),
    ]


def test_columns_with_our_names_need_no_mapping(read, lines):
    row = {**GOOD, "solution": "so\n#### 5", "difficulty": 4}
    assert read("jsonl", lines(row)) == [Row("2 + 3 =", "5", "so\n#### 5", 4)]


def test_blank_lines_a_byte_order_mark_and_windows_line_ends_do_not_matter(read, lines):
    text = json.dumps(GOOD)
    assert read("jsonl", lines(b"\xef\xbb\xbf" + text.encode() + b"\r", "", text)) == [ROW, ROW]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"prompt": ', "not JSON: Expecting value at column 11"),
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
            "difficulty must be a whole number, got 'hard'",
        ),
        (
            '{"prompt": "1 + 1", "answer": "2", "difficulty": 10000000000}',
            "difficulty must be a whole number, got '10000000000'",
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


def test_a_mapping_of_a_name_that_is_not_ours_is_refused(refusal, lines):
    path = lines(GOOD)
    assert refusal("jsonl", path, columns={"promt": "question"}) == (
        f"{path}: columns maps 'promt', which is none of prompt, answer, solution, difficulty; "
        "did you mean 'prompt'?"
    )


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
    assert read("parquet", path) == [Row("a", "5", "", 2), Row("b", "7", "x", 1)]


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


def test_a_saved_data_set_and_one_split_of_several_are_read(read, saved):
    assert read("huggingface", saved(only=[GOOD])) == [ROW]
    several = saved("several", train=[GOOD], test=[{"prompt": "1 + 1 =", "answer": "2"}])
    assert read("huggingface", several) == [ROW]
    assert read("huggingface", several, split="test") == [Row("1 + 1 =", "2", "", 1)]


def test_a_folder_of_files_is_read_by_split_and_converted_in_scratch(read, lines, tmp_path):
    folder = lines(GOOD, name="folder/train.jsonl").parent
    lines(GOOD, GOOD, name="folder/test.jsonl")
    assert read("huggingface", folder) == [ROW]
    assert read("huggingface", folder, split="test") == [ROW, ROW]
    assert list((tmp_path / "scratch").rglob("*.arrow"))


def test_an_unknown_split_names_those_that_there_are(refusal, saved, lines):
    several = saved(train=[GOOD], test=[GOOD])
    assert refusal("huggingface", several, split="tset") == (
        f"{several}: there is no split 'tset'; did you mean 'test'?"
    )
    folder = lines(GOOD, name="folder/train.jsonl").parent
    assert "Should be one of ['train']" in refusal("huggingface", folder, split="tset")


def test_rows_of_a_data_set_are_named_by_number(refusal, saved):
    folder = saved(only=[GOOD, {"prompt": "1 + 1 =", "answer": None}])
    assert refusal("huggingface", folder) == (
        f"{folder}, row 2: the answer ('answer') is empty; fill it or drop the row"
    )


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("train.jsonl", b'{"prompt": ', "JSON parse error"),
        ("train.jsonl", b"", "it seems to have no rows"),
        ("train.parquet", b"junk", "smaller than the minimum file footer"),
        ("train.pkl", pickle.dumps([GOOD]), "No (supported) data files found"),
        ("folder.py", b"raise SystemExit('ran')", "scripts are no longer supported"),
    ],
)
def test_a_folder_that_cannot_be_read_says_why(refusal, tmp_path, name, content, complaint):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / name).write_bytes(content)
    sentence = refusal("huggingface", folder)
    assert sentence.startswith(f"{folder} (split train) is no readable data set: ")
    assert complaint in sentence


def test_a_damaged_saved_data_set_is_refused(refusal, saved):
    folder = saved(only=[GOOD])
    (arrow,) = folder.glob("*.arrow")
    arrow.write_bytes(b"junk")
    assert "is no readable data set" in refusal("huggingface", folder)
    arrow.unlink()
    assert "No such file" in refusal("huggingface", folder)


def test_a_file_or_nothing_where_a_folder_is_needed(refusal, lines, tmp_path):
    path = lines(GOOD)
    assert refusal("huggingface", path) == (
        f"{path} is a file, and kind huggingface reads a folder; "
        "give the folder of a data set, or another kind"
    )
    assert refusal("huggingface", tmp_path / "gone").startswith(f"{tmp_path / 'gone'} is not there")


def test_a_hub_that_does_not_answer_is_told_at_once_with_the_remedy(refusal, monkeypatch):
    from huggingface_hub import constants

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        began = time.monotonic()
        sentence = refusal("huggingface", "org/sums", revision="a" * 40)
    assert time.monotonic() - began < 5
    assert sentence.startswith(f"data set 'org/sums' (split train, revision {'a' * 40}): http://")
    assert sentence.endswith(
        "without a network, download the data set elsewhere and give its folder as path"
    )


COMMIT = "a" * 40
FILE = json.dumps(GOOD).encode()


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub as one data set, org/sums at one commit, needs."""

    def do_GET(self):
        path = self.path.partition("?")[0]
        answers = {
            f"/datasets/org/sums/resolve/{COMMIT}/train.jsonl": FILE,
            f"/api/datasets/org/sums/revision/{COMMIT}": json.dumps(
                {"id": "org/sums", "sha": COMMIT, "siblings": [{"rfilename": "train.jsonl"}]}
            ).encode(),
            f"/api/datasets/org/sums/tree/{COMMIT}": json.dumps(
                [{"type": "file", "path": "train.jsonl", "oid": "b" * 40, "size": len(FILE)}]
            ).encode(),
        }
        body = answers.get(path, b"")
        self.send_response(200 if body else 404)
        missing = "EntryNotFound" if "org/sums" in path else "RepoNotFound"
        headers = {"ETag": '"b"', "X-Repo-Commit": COMMIT} if body else {"X-Error-Code": missing}
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def from_hub(tmp_path):
    """Read data sets by name from a hub of our own, in a process that knows no other."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from posttrain.data.readers import read_rows\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        f"        print(read_rows('huggingface', name, columns={{}}, revision='{COMMIT}',\n"
        "                        scratch=Path('scratch')))\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__, error)\n"
    )
    endpoint = f"http://127.0.0.1:{server.server_port}"
    env = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "home")}

    def read(*names):
        done = subprocess.run(
            [sys.executable, "-c", program, *names],
            env={**env, "HF_HUB_OFFLINE": "0", "HF_DATASETS_OFFLINE": "0"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()

    yield read
    server.shutdown()


def test_a_data_set_is_read_by_name_and_an_unknown_name_is_one_sentence(from_hub):
    assert from_hub("org/sums", "org2/unknown") == [
        str([ROW]),
        f"UserError data set 'org2/unknown' (split train, revision {COMMIT}) did not load: "
        "Dataset 'org2/unknown' doesn't exist on the Hub or cannot be accessed; "
        "check name, revision and split, or give the folder of a local copy as path",
    ]
