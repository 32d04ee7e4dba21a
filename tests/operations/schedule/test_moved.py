"""Digests of what a schedule watches: they move when the thing does, and only then."""

import json
import os
import sqlite3
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from posttrain.operations.schedule.moved import fingerprint, moved, require_watchable
from posttrain.stage.errors import UserError


def changes(root, item, change):
    """What `moved` says after nothing, and after `change`."""
    first = fingerprint(root, [item])
    assert moved(first, fingerprint(root, [item])) == []
    change()
    return moved(first, fingerprint(root, [item]))


def test_what_differs_is_named():
    assert moved({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == ["b moved", "c is new"]
    assert moved({"a": "1", "b": "2"}, {"a": "1"}) == []


def test_a_file_and_a_folder(tmp_path):
    file, folder = tmp_path / "in.jsonl", tmp_path / "in"
    file.write_text("1")
    folder.mkdir()
    (folder / "a").write_text("1")
    item = "file:in.jsonl"
    first = fingerprint(tmp_path, [item])
    os.utime(file, (1, 1))
    # Another time and the same bytes: nothing moved.
    assert fingerprint(tmp_path, [item]) == first
    assert changes(tmp_path, item, lambda: file.write_text("2")) == ["file:in.jsonl moved"]
    (folder / "a").write_text("1")
    assert changes(tmp_path, "file:in", lambda: (folder / "b").touch()) == ["file:in moved"]
    with pytest.raises(UserError, match="file:gone: there is nothing at"):
        fingerprint(tmp_path, ["file:gone"])


def test_the_rows_of_a_query(tmp_path, monkeypatch):
    with sqlite3.connect(tmp_path / "w.db") as database:
        database.execute("CREATE TABLE t (id INTEGER, text TEXT)")
        database.execute("INSERT INTO t VALUES (1, 'one')")

    def run(statement):
        with sqlite3.connect(tmp_path / "w.db") as database:
            database.execute(statement)

    # The place comes from the environment: a password is not written down.
    monkeypatch.setenv("WAREHOUSE", f"sqlite:///{tmp_path}/w.db")
    item = "sql:$WAREHOUSE#SELECT id, text FROM t WHERE id < 3 ORDER BY id"
    assert changes(tmp_path, item, lambda: run("INSERT INTO t VALUES (7, 'seven')")) == []
    assert changes(tmp_path, item, lambda: run("INSERT INTO t VALUES (2, 'two')")) == [
        f"{item} moved"
    ]
    assert changes(tmp_path, item, lambda: run("UPDATE t SET text='2' WHERE id=2")) != []
    with pytest.raises(UserError, match="sql: the query failed: .*no such table"):
        fingerprint(tmp_path, ["sql:$WAREHOUSE#SELECT * FROM absent"])


@pytest.fixture
def hub(monkeypatch):
    """A hub that knows one data set, at the commit that the test sets."""
    state = {"sha": "a" * 40}

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self):
            known = self.path.startswith("/api/datasets/owner/name/revision/main")
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"id": "owner/name", "sha": state["sha"]}).encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield state
    server.shutdown()


def test_a_revision_on_the_hub(tmp_path, hub):
    item = "hf:datasets/owner/name@main"
    assert changes(tmp_path, item, lambda: hub.update(sha="b" * 40)) == [f"{item} moved"]
    assert fingerprint(tmp_path, [item]) == {item: "b" * 40}
    with pytest.raises(UserError, match="hf:datasets/owner/gone@main: "):
        fingerprint(tmp_path, ["hf:datasets/owner/gone@main"])
    with pytest.raises(UserError, match="write hf:datasets/OWNER/NAME@REVISION"):
        fingerprint(tmp_path, ["hf:spaces/owner/name"])


def test_a_folder_on_a_dvc_remote(toy, tmp_path_factory):
    store = tmp_path_factory.mktemp("remote")
    toy.write(".dvc/config", f"['remote \"store\"']\n    url = {store}\n")
    (store / "raw").mkdir()
    (store / "raw/a.jsonl").write_text("1")
    (store / "other").write_text("1")
    item = "remote://store/raw"
    assert changes(toy.root, item, lambda: (store / "other").write_text("22")) == []
    assert changes(toy.root, item, lambda: (store / "raw/b").write_text("2")) == [f"{item} moved"]
    with pytest.raises(UserError, match="DVC knows no remote 'stoer'; did you mean 'store'"):
        fingerprint(toy.root, ["remote://stoer/raw"])
    with pytest.raises(UserError, match="remote://store/gone: nothing is there"):
        fingerprint(toy.root, ["remote://store/gone"])


@pytest.mark.slow
def test_a_folder_in_an_s3_bucket(toy, monkeypatch):
    """A DVC remote on a real S3 implementation; a warm look takes well under a second."""
    boto3, server = pytest.importorskip("boto3"), pytest.importorskip("moto.server")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    moto = server.ThreadedMotoServer(port=0)
    moto.start()
    try:
        host, port = moto.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        s3.create_bucket(Bucket="lake")
        s3.put_object(Bucket="lake", Key="raw/a.jsonl", Body=b"1")
        toy.write(
            ".dvc/config",
            f"['remote \"lake\"']\n    url = s3://lake\n    endpointurl = {endpoint}\n",
        )
        item = "remote://lake/raw"
        put = {"Bucket": "lake", "Key": "raw/a.jsonl", "Body": b"2"}
        # As many bytes as before: only the object's own version tells.
        assert changes(toy.root, item, lambda: s3.put_object(**put)) == [f"{item} moved"]
        begun = time.monotonic()
        fingerprint(toy.root, [item])
        assert time.monotonic() - begun < 1
    finally:
        moto.stop()


@pytest.mark.parametrize("item", ["fiel:a", "file:", "file"])
def test_a_watch_that_nobody_can_keep_is_refused(item):
    with pytest.raises(UserError, match=r"watch .*: (there is no kind|nothing is named)"):
        require_watchable(item)
