"""`posttrain doctor` on a project's cache, ledger and leftovers, each with a fault put in."""

import json
import os
import shutil
import socket
import sqlite3
import time
from pathlib import Path

import pytest
from filelock import FileLock

from posttrain.operations.maintenance.checks import ledger, leftovers, objects
from posttrain.operations.maintenance.checks.finding import CheckScope
from posttrain.operations.schedule.notes import open_notes
from posttrain.provenance.ledger import Run, open_ledger
from tests.forked import posttrain

pytestmark = pytest.mark.filterwarnings("ignore")
DEAD = 2**22 + 1


@pytest.fixture
def check(toy):
    """Findings of one check in the toy project that are not ok, by state."""

    def call(one, **options):
        found = list(one(CheckScope(toy.root, **options)))
        return [(each.state, each.says, each.remedy) for each in found if each.state != "ok"]

    return call


@pytest.fixture
def says(toy):
    """What a check says of what is ok."""

    def call(one, **options):
        found = list(one(CheckScope(toy.root, **options)))
        return " | ".join(each.says for each in found if each.state == "ok")

    return call


def flip(cache, text):
    """Change one byte of the object that is this JSON; its path."""
    for path in cache.folder.glob("??/*"):
        if path.read_text() == text:
            path.chmod(0o644)
            path.write_text(text.replace("}", "]"))
            return path
    raise AssertionError(text)


def test_a_sound_project(toy, cache, history, check, says):
    history(10)
    assert check(objects.cache) == []
    assert says(objects.cache).startswith("3 objects hashed and sound, of 3")
    assert check(leftovers.leftovers) == []
    assert check(ledger.ledger, deep=True) == []
    assert says(ledger.ledger) == "1 runs, schema 0005"


def test_a_flipped_byte_is_named_with_artifact_and_stage_and_put_back(toy, cache, history, check):
    history(10)
    bad = flip(cache, '{"sum": 11}')
    ((state, said, remedy),) = check(objects.cache, deep=True)
    run = open_ledger(toy.root / ".posttrain/ledger.db").runs()[0].id
    assert state == "broken"
    assert said == f"{bad} is damaged: data/second/result.json, made by stage second in run {run}"
    assert remedy == (
        "posttrain doctor --deep --fix puts it back from the workspace, which still has it"
    )
    assert check(objects.cache, deep=True, fix=True) == []
    assert cache.sums() == {10, 11, 12}
    assert check(objects.cache, deep=True) == []


def test_a_flipped_byte_whose_bytes_are_nowhere_else_is_removed_and_made_anew(
    toy, cache, history, check
):
    history(10)
    bad = flip(cache, '{"sum": 11}')
    shutil.rmtree(toy.root / "data")
    ((_, _, remedy),) = check(objects.cache, deep=True)
    assert remedy == (
        "posttrain doctor --deep --fix removes what is damaged; then dvc pull where a remote has"
        " it, else posttrain run makes it anew (stage second)"
    )
    ((state, _, remedy),) = check(objects.cache, deep=True, fix=True)
    assert (state, bad.exists()) == ("warning", False)
    assert (
        remedy == "dvc pull where a remote has it; else posttrain run makes it anew (stage second)"
    )
    # What it says to do is true.
    statuses = {name: run.status for name, run in toy.run("first.amount=10").items()}
    assert statuses == {"first": "restored", "second": "succeeded", "third": "restored"}
    assert check(objects.cache, deep=True) == []


def test_an_object_that_somebody_deleted_is_missed(toy, cache, history, check):
    history(10)
    lost = flip(cache, '{"sum": 12}')
    lost.unlink()
    ((state, said, _),) = check(objects.cache)
    assert (state, f"{lost} is gone: data/third/result" in said) == ("warning", True)
    assert check(objects.cache, fix=True) == []
    assert cache.sums() == {10, 11, 12}


def test_a_damaged_file_of_a_directory_is_named_inside_it(toy, cache, history, check):
    from posttrain.provenance.dvc import DvcStore
    from posttrain.provenance.ledger import ArtifactRecord, StageRun

    history(10)
    folder = toy.root / "data/policy"
    folder.mkdir()
    (folder / "weights").write_text('{"sum": 77}')
    (folder / "config").write_text('{"sum": 78}')
    stored = DvcStore(toy.root, toy.root).store([folder])[folder]
    out = ArtifactRecord("policy", "checkpoint", "data/policy", "e" * 64, 1, md5=stored.md5)
    now = time.time()
    with open_ledger(toy.root / ".posttrain/ledger.db") as known:
        run = known.runs()[0].id
        known.record(
            StageRun("x", run, "sft", "t", "f" * 64, "succeeded", now, now, outputs=(out,))
        )
    flip(cache, '{"sum": 77}')
    ((_, said, _),) = check(objects.cache, deep=True)
    assert said.endswith(f"weights of data/policy, made by stage sft in run {run}")
    assert check(objects.cache, deep=True, fix=True) == []
    # The list of the directory itself.
    listed = next(cache.folder.glob("??/*.dir"))
    listed.chmod(0o644)
    listed.write_text("[]")
    ((_, said, _),) = check(objects.cache, deep=True)
    assert f"{listed} is damaged: data/policy" in said
    assert check(objects.cache, deep=True, fix=True) == []
    assert {each["relpath"] for each in json.loads(listed.read_text())} == {"weights", "config"}


def test_a_clone_has_none_of_the_objects_and_nothing_is_wrong(toy, cache, history, check, says):
    history(10)
    shutil.rmtree(cache.folder)
    shutil.rmtree(toy.root / ".posttrain")
    assert check(objects.cache) == []
    assert "3 artifacts that a dvc.lock names were never here" in says(objects.cache)


def test_nothing_is_fixed_while_a_run_is_under_way(toy, cache, history, check):
    history(10)
    bad = flip(cache, '{"sum": 11}')
    dead_lock(toy)
    with FileLock(toy.root / ".posttrain/lock-other"):
        ((_, _, remedy),) = check(objects.cache, deep=True, fix=True)
        assert f"not fixed now: {toy.root} is in use by a run" in remedy
        ((_, _, remedy),) = check(leftovers.leftovers, fix=True)
        assert "not fixed now" in remedy
    assert bad.read_text() == '{"sum": 11]'
    with open_ledger(toy.root / ".posttrain/ledger.db") as known:
        known.begin_run(Run("live", "r", time.time()))
    ((_, _, remedy),) = check(objects.cache, deep=True, fix=True)
    assert "not fixed now: run live is under way" in remedy
    assert bad.exists()


def dead_lock(toy):
    state = toy.root / ".posttrain"
    (state / "lock-root").touch()
    note = state / "lock-root.json"
    note.write_text(
        json.dumps({"pid": DEAD, "host": socket.gethostname(), "command": "posttrain run"})
    )
    return note


def test_notes_of_dead_processes(toy, history, check):
    history(10)
    note = dead_lock(toy)
    rwlock = toy.root / ".dvc/tmp/rwlock"
    rwlock.parent.mkdir(exist_ok=True)
    info = {"pid": DEAD, "cmd": "dvc repro"}
    rwlock.write_text(json.dumps({"/x": {"read": [info], "write": info}}))
    found = [said for _, said, _ in check(leftovers.leftovers)]
    assert found == [
        f".posttrain/lock-root.json is of process {DEAD} ('posttrain run'), which is gone",
        f".dvc/tmp/rwlock is of process {DEAD} (dvc), which is gone",
    ]
    assert check(leftovers.leftovers, fix=True) == []
    assert not note.exists()
    assert not rwlock.exists()
    # One of its processes lives: it is not ours to judge.
    rwlock.write_text(json.dumps({"/x": {"read": [info, {"pid": os.getpid(), "cmd": "dvc"}]}}))
    assert check(leftovers.leftovers, fix=True) == []
    assert rwlock.exists()


def test_outputs_of_a_killed_run(toy, history, check):
    history(10)
    half = toy.root / ".posttrain/staging/root/second-abc"
    half.mkdir(parents=True)
    ((state, said, remedy),) = check(leftovers.leftovers)
    assert (state, remedy) == ("warning", "posttrain doctor --fix removes it")
    assert said == ".posttrain/staging/root/second-abc, which a killed run was making"
    with FileLock(toy.root / ".posttrain/lock-root"):
        assert check(leftovers.leftovers) == []
    assert check(leftovers.leftovers, fix=True) == []
    assert not half.exists()


def test_dead_worktrees(toy, history, check, git):
    history(10)
    git("add", "-A")
    git("commit", "-q", "-m", "x")
    for name in ("gone", "nightly", "removed"):
        tree = toy.root / ".posttrain/worktrees" / name / "tree"
        git("worktree", "add", "-q", "--detach", str(tree))
    shutil.rmtree(toy.root / ".posttrain/worktrees/gone")
    with open_notes(toy.root) as notes:
        for name, what in (
            ("nightly", "declared"),
            ("removed", "declared"),
            ("removed", "removed"),
        ):
            notes.add(name, 0.0, what, "")
    gone, orphan = check(leftovers.leftovers)
    assert gone[1] == "git knows 1 worktrees whose folder is gone"
    tree = toy.root / ".posttrain/worktrees/removed/tree"
    assert orphan[2] == f"git worktree remove --force {tree}"
    assert [each[2] for each in check(leftovers.leftovers, fix=True)] == [orphan[2]]
    assert "gone" not in git("worktree", "list")


def test_a_ledger_that_is_damaged_newer_older_or_no_ledger(toy, history, check):
    assert check(ledger.ledger) == []
    history(10)
    path = toy.root / ".posttrain/ledger.db"
    for version, state, remedy in (
        ("9999", "broken", "upgrade posttrain"),
        ("0001", "warning", "back it up; the next run migrates it"),
    ):
        with sqlite3.connect(path) as database:
            database.execute("UPDATE alembic_version SET version_num=?", [version])
        ((found, said, do),) = check(ledger.ledger)
        assert (found, do, version in said) == (state, remedy, True)
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",)
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = path.stat().st_size
    with path.open("r+b") as stream:
        stream.seek(4096)
        stream.write(os.urandom(size - 4096))
    ((found, said, do),) = check(ledger.ledger)
    assert (found, "posttrain ledger import" in do) == ("broken", True)
    path.write_text("not a database" * 500)
    ((found, said, _),) = check(ledger.ledger)
    assert (found, "file is not a database" in said) == ("broken", True)


def test_a_ledger_that_somebody_holds(toy, history, check, monkeypatch):
    monkeypatch.setattr(ledger, "_HELD_SECONDS", 0.1)
    history(10)
    holder = sqlite3.connect(toy.root / ".posttrain/ledger.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    ((state, said, remedy),) = check(ledger.ledger)
    holder.close()
    assert state == "broken"
    assert "nobody can write to" in said
    assert "database is locked" in said
    assert remedy.startswith("fuser ")


@pytest.mark.slow
def test_the_command_in_both_forms(toy, cache, history):
    history(10)
    sound = toy.cli("doctor")
    assert sound.returncode == 0, sound.stdout
    assert "broken," in sound.stdout.splitlines()[-1]
    flip(cache, '{"sum": 11}')
    broken = toy.cli("doctor", "--deep")
    assert broken.returncode == 1
    (line,) = (line for line in broken.stdout.splitlines() if line.startswith("broken"))
    assert "is damaged: data/second/result" in line
    told = toy.cli("doctor", "--deep", "-o", "json")
    assert told.returncode == 1
    (found,) = (each for each in json.loads(told.stdout) if each["state"] == "broken")
    assert found["check"] == "cache"
    assert set(found) == {"check", "state", "says", "remedy"}
    assert toy.cli("doctor", "--deep", "--fix").returncode == 0
    assert cache.sums() == {10, 11, 12}


def test_outside_of_a_project_only_the_machine_is_looked_at(tmp_path):
    done = posttrain("doctor", "-o", "json", cwd=Path(tmp_path.root))
    assert done.returncode == 0, done.stderr
    kinds = {each["check"] for each in json.loads(done.stdout)}
    assert {"python", "packages", "gpu"} <= kinds
    assert not kinds & {"cache", "ledger", "disk"}


def test_a_file_that_is_not_what_is_remembered_of_it_is_found(toy):
    toy.run()
    assert toy.cli("doctor", "--deep").returncode == 0
    memory = toy.root / ".posttrain/digests.json"
    rows = json.loads(memory.read_text())
    name = next(iter(rows))
    rows[name][-1] = "0" * 64
    memory.write_text(json.dumps(rows))
    broken = toy.cli("doctor", "--deep")
    assert broken.returncode == 1
    assert f"{name} holds other bytes than is known of it" in " ".join(broken.stdout.split())
