"""Many processes, killed writers, full disks: the ledger stays whole and says what happened."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from posttrain.provenance.ledger import migrate, open_ledger, read_ledger
from posttrain.provenance.ledger.store import SqliteStore
from posttrain.provenance.ledger.version import HEAD, stored_version
from posttrain.stage.errors import UserError
from tests.quick import first_now

# Half of fifty: each is done to both kinds of database.
_KILLS = first_now(range(25))
WRITER = """
import itertools, os, sys
from posttrain.provenance.ledger import ArtifactRecord, Run, StageRun, open_ledger
url, name, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
def stage_run(batch, part):
    made = ArtifactRecord("o", "completions", "data/o", f"{name}-{batch}-{part}", 1)
    read = ArtifactRecord("i", "completions", "data/i", f"shared-{part}", 1)
    return StageRun(
        id=f"{name}-{batch}-{part}", run_id=name, stage="sft", task="t", key=f"{name}-{batch}",
        status="succeeded", started=0.0, ended=1.0, inputs=(read,), outputs=(made,),
        components={"code": {"shared": "x"}, "params": {"batch": str(batch)}},
    )
with open_ledger(url) as ledger:
    ledger.begin_run(Run(name, "x", 0.0))
    for batch in itertools.count() if batches == 0 else range(batches):
        ledger.record(*(stage_run(batch, part) for part in range(5)))
        print(batch, flush=True)
    ledger.finish_run(name, "succeeded", 2.0)
"""


def start(url, name, batches):
    command = [sys.executable, "-c", WRITER, url, name, str(batches)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_whole(ledger):
    """Every batch of five is there entirely or not at all, with all of its edges."""
    batches = ledger.store.query("SELECT key,COUNT(*) FROM stage_runs GROUP BY key")
    assert {count for _, count in batches} <= {5}
    for run in ledger.every_stage_run():
        assert [record.digest for record in run.outputs] == [run.id]
        assert len(run.inputs) == 1
        assert run.components["code"] == {"shared": "x"}
    return {key for key, _ in batches}


@pytest.mark.slow
@pytest.mark.core
def test_twenty_processes_create_and_fill_one_ledger(url):
    writers = [start(url, f"w{number}", 10) for number in range(20)]
    complaints = [writer.communicate(timeout=120)[1] for writer in writers]
    assert complaints == [""] * 20
    with open_ledger(url) as ledger:
        keys = check_whole(ledger)
        assert keys == {f"w{number}-{batch}" for number in range(20) for batch in range(10)}
        assert {run.status for run in ledger.runs()} == {"succeeded"}
        # 5 shared inputs and 20 * 10 * 5 outputs, each stored once
        assert ledger.store.query("SELECT COUNT(*) FROM artifacts") == [(1005,)]


@pytest.mark.parametrize("seed", _KILLS)
def test_a_writer_killed_at_any_moment_loses_nothing_it_reported(url, seed):
    name = f"k{seed}"
    writer = start(url, name, 0)
    assert writer.stdout.readline() == "0\n"
    time.sleep(random.Random(seed).uniform(0.0, 0.08))
    writer.kill()
    reported = 1 + len(writer.stdout.read().splitlines())
    writer.wait(timeout=30)
    with open_ledger(url) as ledger:
        keys = check_whole(ledger)
        # Reported batches are all there; one more may have been committed just before the kill.
        assert keys >= {f"{name}-{batch}" for batch in range(reported)}
        assert len(keys) <= reported + 1
        assert ledger.run(name).status == "killed"
    again = start(url, f"{name}-next", 2)
    assert again.communicate(timeout=60)[1] == ""


def test_a_full_disk_is_said_and_leaves_no_half_batch(tmp_path, make):
    with open_ledger(tmp_path / "ledger.db") as ledger:
        pages = ledger.store.query("PRAGMA page_count")[0][0]
        ledger.store.query(f"PRAGMA max_page_count={pages + 2}")
        batch = [make.stage_run(i, host="x" * 500) for i in range(100)]
        with pytest.raises(UserError, match="cannot be written: .*full; free some disk space"):
            ledger.record(*batch)
        assert ledger.stage_runs("r1") == []
        ledger.store.query(f"PRAGMA max_page_count={pages + 1000}")
        ledger.record(*batch)
        assert len(ledger.stage_runs("r1")) == 100


def test_a_damaged_file_is_said(tmp_path, make):
    path = tmp_path / "ledger.db"
    with open_ledger(path) as ledger:
        ledger.record(*(make.stage_run(i) for i in range(500)))
    with path.open("r+b") as stream:
        stream.seek(4096)
        stream.write(os.urandom(path.stat().st_size - 4096))
    with (
        pytest.raises(
            UserError, match=r"ledger.db cannot be (opened|read).*restore it from a copy"
        ),
        open_ledger(path) as ledger,
    ):
        ledger.stage_runs("r1")


READER = """
import sys
from posttrain.stage.errors import UserError
from posttrain.provenance.ledger import Run, open_ledger
with open_ledger(sys.argv[1], create=False) as ledger:
    print(len(ledger.stage_runs("r1")))
    try:
        ledger.begin_run(Run("r2", "x", 0.0))
    except UserError as error:
        print(error)
"""


COPIER = """
import sys
from pathlib import Path
from posttrain.stage.errors import UserError
from posttrain.provenance.ledger import open_ledger, read_ledger
try:
    open_ledger(sys.argv[1])
except UserError as error:
    print(error)
with read_ledger(Path(sys.argv[1])) as ledger:
    print(ledger.runs())
"""
OPENER = """
import sys
import alembic.command
from posttrain.provenance.ledger import migrate, open_ledger, read_ledger
from posttrain.provenance.ledger.store import SqliteStore
from posttrain.provenance.ledger.version import HEAD, stored_version
from posttrain.provenance.ledger.version import stored_version
print("ready", flush=True)
with open_ledger(sys.argv[1]) as ledger:
    print(stored_version(ledger.store))
"""


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs another user")
def test_a_read_only_folder_can_still_be_read(public_path, make):
    with open_ledger(public_path / "ledger.db") as ledger:
        ledger.record(make.stage_run(1))
    other = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    command = [*other, sys.executable, "-c", READER, str(public_path / "ledger.db")]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.stderr == ""
    count, complaint = shown.stdout.splitlines()
    assert count == "1"
    assert "cannot be written" in complaint
    assert "make its folder writable" in complaint


def make_older(path):
    """A ledger as 0.1 left it: of the second schema, its journal a WAL."""
    migrate.upgrade(f"sqlite:///{path}", "0002")
    SqliteStore(path).close()


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs another user")
def test_an_older_ledger_in_a_read_only_folder_is_one_sentence_or_read_as_a_copy(public_path):
    path = public_path / "ledger.db"
    make_older(path)
    other = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    shown = subprocess.run(
        [*other, sys.executable, "-c", COPIER, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.stderr == ""
    complaint, runs = shown.stdout.splitlines()
    assert f"the ledger sqlite:///{path} cannot be upgraded to today's schema" in complaint
    assert "make its folder writable" in complaint
    assert runs == "[]"


@pytest.mark.slow
def test_several_processes_that_open_an_older_ledger_migrate_it_once(tmp_path):
    path = tmp_path / "ledger.db"
    make_older(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    command = [sys.executable, "-c", OPENER, str(path)]
    openers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(4)
    ]
    assert [opener.stdout.readline() for opener in openers] == ["ready\n"] * 4
    time.sleep(0.5)
    holder.execute("COMMIT")
    assert [opener.communicate(timeout=60)[0] for opener in openers] == [f"{HEAD}\n"] * 4


def test_an_upgrade_that_has_to_wait_too_long_is_one_sentence(tmp_path, monkeypatch):
    path = tmp_path / "ledger.db"
    make_older(path)
    # The upgrade has a connection of its own, in a module that is read anew each time.
    monkeypatch.setattr("posttrain.provenance.ledger.store.BUSY_SECONDS", 0.2)
    monkeypatch.setattr("posttrain.stage.write_ahead.BUSY_SECONDS", 0.2)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(UserError, match="upgraded to today's schema: .*another process holds it"):
        open_ledger(path)
    with read_ledger(path) as ledger:
        assert ledger.runs() == []
    holder.close()
    with closing(SqliteStore(path)) as store:
        assert stored_version(store) == "0002"


def test_another_process_that_never_lets_go_is_named_as_the_cause(tmp_path, monkeypatch):
    monkeypatch.setattr("posttrain.provenance.ledger.store.BUSY_SECONDS", 0.2)
    path = tmp_path / "ledger.db"
    with open_ledger(path) as ledger:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(UserError, match="another process holds it"):
            ledger.finish_run("r1", "failed", 1.0)
        holder.close()
        ledger.finish_run("r1", "failed", 1.0)
