"""The request cache: what a key sees, what survives a kill, what a flipped byte does."""

import sqlite3
import subprocess
import sys

import pytest

from posttrain.backends.endpoint.cache import RequestCache, default_path, request_key
from posttrain.stage.errors import UserError


def test_a_key_sees_address_body_and_salt_and_no_order():
    keys = {
        request_key("http://a/v1", {"x": 1}),
        request_key("http://b/v1", {"x": 1}),
        request_key("http://a/v1", {"x": 2}),
        request_key("http://a/v1", {"x": 1}, "1"),
    }
    assert len(keys) == 4
    assert request_key("u", {"x": 1, "y": 2}) == request_key("u", {"y": 2, "x": 1})


WRITE_FOR_EVER = """
import itertools, pathlib, sys
from posttrain.backends.endpoint.cache import RequestCache
cache = RequestCache(pathlib.Path(sys.argv[1]))
for number in itertools.count():
    cache.put(f"k{number}", {"n": number})
    print(number, flush=True)
"""


def test_what_was_put_is_there_after_a_kill(tmp_path):
    command = [sys.executable, "-c", WRITE_FOR_EVER, str(tmp_path / "r.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        told = [int(child.stdout.readline()) for _ in range(50)]
        child.kill()
    cache = RequestCache(tmp_path / "r.db")
    assert told == list(range(50))
    assert [cache.get(f"k{number}") for number in told] == [{"n": number} for number in told]


def test_a_flipped_byte_is_a_miss_and_a_new_answer_repairs_it(tmp_path):
    cache = RequestCache(tmp_path / "r.db")
    cache.put("k", {"text": "right"})
    with sqlite3.connect(tmp_path / "r.db") as other:
        other.execute("update answers set answer = replace(answer, 'right', 'wrong')")
    assert cache.get("k") is None
    cache.put("k", {"text": "right"})
    assert cache.get("k") == {"text": "right"}


def test_a_file_that_is_no_cache_is_refused(tmp_path):
    (tmp_path / "r.db").write_text("not a database, but long enough to be looked at" * 20)
    with pytest.raises(UserError, match=r"the request cache .*r\.db cannot be used"):
        RequestCache(tmp_path / "r.db")


def test_the_place_is_the_projects_state_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("POSTTRAIN_REQUESTS")
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "recipes/mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "recipes/mine")
    assert default_path() == tmp_path / ".posttrain/requests.db"
