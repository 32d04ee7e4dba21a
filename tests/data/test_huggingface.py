"""Hugging Face data sets, from folders and from a stand-in for the hub; a sentence for the rest."""

import http.server
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time

import pytest

from posttrain.data import hub
from posttrain.data.sources.columns import ProblemRow
from posttrain.stage.errors import UserError

GOOD = {"prompt": "2 + 3 =", "answer": "5"}
ROW = ProblemRow("2 + 3 =", "5", "", 1)


@pytest.fixture
def saved(tmp_path):
    """Save a data set, or one per split, as the library does; return its folder."""
    import datasets

    def save(name="saved", **splits):
        tables = {split: datasets.Dataset.from_list(rows) for split, rows in splits.items()}
        whole = tables.pop("only") if "only" in tables else datasets.DatasetDict(tables)
        whole.save_to_disk(str(tmp_path / name))
        return tmp_path / name

    return save


def test_a_saved_data_set_and_one_split_of_several_are_read(read, saved):
    assert read("huggingface", saved(only=[GOOD])) == [ROW]
    several = saved("several", train=[GOOD], test=[{"prompt": "1 + 1 =", "answer": "2"}])
    assert read("huggingface", several) == [ROW]
    assert read("huggingface", several, split="test") == [ProblemRow("1 + 1 =", "2", "", 1)]


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


@pytest.mark.parametrize("error", [None, OSError("no route to host")])
def test_a_network_that_swallows_everything_is_not_waited_for(monkeypatch, error):
    """A resolver without an answer heeds no timeout."""
    given_up, before = threading.Event(), set(threading.enumerate())

    def swallow(*_args, **_options):
        if error:
            raise error
        given_up.wait()
        raise TimeoutError

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("urllib.request.urlopen", swallow)
    monkeypatch.setattr(hub, "_SECONDS_TO_ANSWER", 0.1 if error is None else 2.0)
    began = time.monotonic()
    reason = "nothing in 0.1 seconds" if error is None else "no route to host"
    with pytest.raises(
        UserError, match=rf"^a model: http.* does not answer \({reason}\); go there"
    ):
        hub.check_network("a model", remedy="go there")
    assert time.monotonic() - began < 1
    # Else it would raise into whichever test runs by then.
    given_up.set()
    for thread in set(threading.enumerate()) - before:
        thread.join()


def test_an_answer_that_is_no_http_is_named_and_no_thread_fails(monkeypatch, recwarn):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
        with pytest.raises(UserError, match=r"does not answer \(SSH-2.0\); go there"):
            hub.check_network("a model", remedy="go there")
        thread.join()
    assert not recwarn.list


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
        "from posttrain.data.sources.base import SourceRequest\n"
        "from posttrain.data.sources.columns import parse_row\n"
        "from posttrain.data.sources.huggingface import HuggingFaceSource\n"
        "import posttrain.learning.rewards.verifiers.registry\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        f"        part = HuggingFaceSource(name=name, revision='{COMMIT}')\n"
        "        request = SourceRequest(0, 1, 1, 0.5, Path('scratch'))\n"
        "        print([parse_row('', row, {}) for _, row in part.records(request)])\n"
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


@pytest.mark.slow
def test_a_data_set_is_read_by_name_and_an_unknown_name_is_one_sentence(from_hub):
    assert from_hub("org/sums", "org2/unknown") == [
        str([ROW]),
        f"UserError data set 'org2/unknown' (split train, revision {COMMIT}) did not load: "
        "Dataset 'org2/unknown' doesn't exist on the Hub or cannot be accessed; "
        "check name, revision and split, or give the folder of a local copy as path",
    ]
