"""`posttrain gc` on a project with history."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace

import pytest
from click.testing import CliRunner

from posttrain.cli.main import cli
from posttrain.operations.maintenance.collect import doomed
from posttrain.provenance.ledger import open_ledger
from posttrain.provenance.ledger.records import Release
from tests.quick import first_now

pytestmark = pytest.mark.filterwarnings("ignore")


def gc(toy, *arguments):
    """Run it in this process: importing posttrain for each call would take most of the time."""
    with contextlib.chdir(toy.root):
        done = CliRunner().invoke(cli, ["gc", *arguments])
    assert done.exit_code == 0, done.exception
    return done.output


def test_runs_beyond_the_last_go_and_the_table_says_why(toy, cache, history):
    history(10, 20, 30)
    before = cache.sums()
    shown = gc(toy, "--keep-last", "1", "--dry-run")
    assert "nothing names it" in shown
    assert "a dvc.lock names it" in shown
    assert cache.sums() == before == {10, 11, 12, 20, 21, 22, 30, 31, 32}
    gc(toy, "--keep-last", "1")
    assert cache.sums() == {30, 31, 32}
    assert "0 B can go" in gc(toy, "--keep-last", "1")


def test_what_went_is_made_anew_and_what_stayed_is_restored(toy, cache, history):
    history(10, 20)
    gc(toy, "--keep-last", "1")
    assert {run.status for run in toy.run("first.amount=10").values()} == {"succeeded"}
    assert {run.status for run in toy.run("first.amount=20").values()} == {"restored"}


def test_a_budget_removes_the_oldest_only(toy, cache, history):
    history(10, 20, 30)
    size = sum(path.stat().st_size for path in cache.folder.glob("??/*"))
    gc(toy, "--keep-last", "1", "--budget", str(size - 1))
    assert len(cache.sums()) == 8
    assert not cache.sums() >= {10, 11, 12}
    assert "cannot be met" in gc(toy, "--keep-last", "1", "--budget", "1")
    assert cache.sums() == {30, 31, 32}


@pytest.mark.slow
def test_branches_tags_and_worktrees_keep_what_their_lock_names(toy, cache, history, git):
    kept = {"branch": 10, "tag": 20, "stash": 30, "tree": 40}
    for kind, amount in kept.items():
        history(amount)
        git("add", "-A")
        if kind == "stash":
            git("stash")
            continue
        git("commit", "-q", "-m", kind)
        if kind == "branch":
            git("branch", "old")
        elif kind == "tag":
            git("tag", "v1")
    git("worktree", "add", "-q", "--detach", str(toy.root.parent / f"{toy.root.name}-tree"))
    history(50, 60)
    git("add", "-A")
    git("commit", "-q", "-m", "now")
    gc(toy, "--keep-last", "0")
    assert cache.sums() == {n + i for n in (10, 20, 30, 40, 60) for i in range(3)}


def test_a_release_and_a_pin_keep_their_artifacts(toy, cache, history):
    history(10, 20, 30, 40)
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        runs = ledger.runs()[::-1]
        member = ledger.stage_runs(runs[0].id)[2].outputs[0]
        ledger.annotations.release(Release("r@v1.0.0", time.time(), (member,)))
    assert toy.cli("gc", "pin", f"second@{runs[1].id}").returncode == 0
    assert "second@" in toy.cli("gc", "pins").stdout
    shown = gc(toy, "--keep-last", "0")
    assert "release r@v1.0.0" in shown
    assert cache.sums() == {12, 21, 40, 41, 42}
    assert toy.cli("gc", "unpin", f"second@{runs[1].id}").returncode == 0
    gc(toy, "--keep-last", "0")
    assert cache.sums() == {12, 40, 41, 42}
    refused = toy.cli("gc", "unpin", f"second@{runs[1].id}")
    assert refused.returncode == 2
    assert "not pinned" in refused.stderr


def test_releases_that_only_git_knows_keep_their_commit_and_their_archive(toy, cache, history, git):
    history(10)
    git("add", "-A")
    git("commit", "-q", "-m", "released")
    history(20, 30)
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        archive = ledger.stage_runs(ledger.runs()[1].id)[1].outputs[0].md5
    git("tag", "-a", "mini@v1.0.0", "-m", f"mini@v1.0.0\n\narchive-md5: {archive}\npolicy: x")
    git("checkout", "-q", "--orphan", "other")
    git("add", "-A")
    git("commit", "-q", "-m", "now")
    git("branch", "-D", git("branch", "--list", "ma*").strip(" *\n"))
    shown = gc(toy, "--keep-last", "0")
    assert "a release names it" in shown
    assert cache.sums() == {10, 11, 12, 21, 30, 31, 32}
    git("tag", "-d", "mini@v1.0.0")
    gc(toy, "--keep-last", "0")
    assert cache.sums() == {30, 31, 32}


def test_what_goes_is_listed_by_its_last_use(toy, history):
    history(10, 20, 30)
    shown = gc(toy, "--keep-last", "1", "-v", "--dry-run").splitlines()
    assert shown[0].split() == ["last", "used", "what", "name", "size"]
    assert [line.split()[3] for line in shown[1:7]] == [
        f"data/{name}/result.json" for name in ("first", "second", "third") * 2
    ]
    assert shown[-1] == "Nothing was removed."


def test_best_of_what(toy, history):
    history(10)
    refused = toy.cli("gc", "--keep-best", "3")
    assert refused.returncode == 2
    assert "--keep-best needs a --metric" in refused.stderr


@pytest.mark.slow
def test_the_best_by_a_metric_stay(toy, cache, history):
    history(10, 70, 20, 30)
    gc(toy, "--keep-last", "0", "--metric", "third/sum")
    assert cache.sums() == {71, 72, 30, 31, 32}
    history(5, 30)
    gc(toy, "--keep-last", "0", "--metric", "third/sum", "--lowest")
    assert cache.sums() == {6, 7, 30, 31, 32}
    refused = toy.cli("gc", "--metric", "third/sun")
    assert refused.returncode == 2
    assert "no run in the ledger has the metric" in refused.stderr


def test_objects_that_no_ledger_knows_stay(toy, cache, history):
    history(10, 20)
    foreign = cache.folder / "00" / ("0" * 30)
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text('{"sum": 99}')
    assert "no ledger here knows it" in gc(toy, "--keep-last", "0")
    assert cache.sums() == {20, 21, 22, 99}


def test_what_a_kill_left_of_an_object_goes_and_is_no_damage(toy, cache, history):
    history(10, 20)
    half = cache.folder / "00" / ".a1B2.tmp"
    half.parent.mkdir(exist_ok=True)
    half.write_text("ha")
    with contextlib.chdir(toy.root):
        assert "damaged" not in CliRunner().invoke(cli, ["doctor", "--deep"]).output
    gc(toy, "--keep-last", "9")
    assert not half.exists()
    assert cache.sums() == {10, 11, 12, 20, 21, 22}


def test_another_project_on_the_same_cache_keeps_what_it_needs(toy, cache, history, tmp_path):
    history(10)
    other = toy.root.parent / f"{toy.root.name}-other"
    shutil.copytree(toy.root, other, ignore=shutil.ignore_patterns("cache"))
    (other / ".dvc/config.local").write_text(f"[cache]\n    dir = {toy.root}/.dvc/cache\n")
    # Its first object in the cache tells the cache of the project.
    replace(toy, root=other).run("first.amount=15")
    history(20)
    # A former posttrain, which cannot read today's schema, may still be at work there.
    ledger = other / ".posttrain/ledger.db"
    with closing(sqlite3.connect(ledger)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '0002'")
        database.execute("ALTER TABLE stage_runs DROP COLUMN circumstances")
        for table in ("runs", "releases", "recalls"):
            database.execute(f"ALTER TABLE {table} DROP COLUMN actor")
    gc(toy, "--keep-last", "0")
    assert cache.sums() == {15, 16, 17, 20, 21, 22}
    with closing(sqlite3.connect(ledger)) as database:
        assert database.execute("SELECT * FROM alembic_version").fetchall() == [("0002",)]


def test_checkpoints_of_finished_stages_and_half_made_outputs_go(toy, history):
    history(10)
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        finished = ledger.history.latest("first").key[:16]
    state = toy.root / ".posttrain"
    places = {
        "finished": state / "scratch" / f"root-first-{finished}",
        "older": state / "scratch" / f"root-second-{'1' * 16}",
        "newest": state / "scratch" / f"root-second-{'2' * 16}",
        "half": state / "staging" / "root" / "second-abc",
    }
    for age, place in enumerate(places.values()):
        place.mkdir(parents=True)
        (place / "model.safetensors").write_bytes(b"x" * 100)
        os.utime(place, (1000 + age, 1000 + age))
    gc(toy)
    assert {name for name, place in places.items() if place.exists()} == {"newest"}


def test_entries_of_the_run_cache_go_with_their_outputs(toy, cache, history):
    history(10, 20)
    entries = {}
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        for run in ledger.runs():
            md5 = ledger.stage_runs(run.id)[0].outputs[0].md5
            path = toy.root / ".dvc/cache/runs/ab" / ("ab" * 32) / md5
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"cmd: x\nouts:\n- path: data\n  md5: {md5}\n")
            entries[run.overrides["first.amount"]] = path
    gc(toy, "--keep-last", "1")
    assert [amount for amount, path in entries.items() if path.exists()] == ["20"]


def test_answers_of_servers_go_only_when_asked(toy, history, monkeypatch):
    monkeypatch.delenv("POSTTRAIN_REQUESTS", raising=False)
    history(10)
    answers = toy.root / ".posttrain" / "requests.db"
    answers.write_bytes(b"paid")
    assert "paid for" in gc(toy)
    assert answers.exists()
    gc(toy, "--requests")
    assert not answers.exists()


@pytest.mark.slow
def test_a_run_under_way_ends_well_beside_a_gc(toy, cache, history):
    history(10, 20)
    # The run goes back to the amount of the first run, whose results gc would remove.
    # By the recipe, not by --set: a try would leave the committed dvc.lock as it is.
    toy.recipe("first: {amount: 10}\nthird: {mood: wait}\n")
    running = subprocess.Popen(
        [sys.executable, "-m", "posttrain", "run", "--local"],
        cwd=toy.root,
        env={**os.environ, "POSTTRAIN_TRACKING": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    scratch = toy.root / ".posttrain" / "scratch"
    deadline = time.monotonic() + 60
    while not list(scratch.glob("*-third-*/waiting")) and time.monotonic() < deadline:
        assert running.poll() is None, running.stdout.read()
        time.sleep(0.05)
    waiting = next(scratch.glob("*-third-*/waiting")).parent
    shown = gc(toy, "--keep-last", "0")
    assert "a run is under way" in shown
    assert "a stage is writing to it" in shown
    assert {10, 11} <= cache.sums()
    (waiting / "go").touch()
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 0, said
    assert {10, 11, 12} <= cache.sums()
    assert (
        "up to date"
        in subprocess.run(
            [sys.executable, "-m", "dvc", "status"],
            cwd=toy.root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )


_KILLED = """
import os, sys
from pathlib import Path
import posttrain.operations.maintenance.collect
left = int(sys.argv.pop(1))
unlink = Path.unlink
def counted(path, **options):
    global left
    if "md5" in path.parts:
        left -= 1
        if left < 0:
            os.kill(os.getpid(), 9)
    unlink(path, **options)
Path.unlink = counted
from posttrain.cli.main import cli
cli.main(["gc", "--keep-last", "0"], standalone_mode=False)
"""


@pytest.mark.parametrize("survives", first_now([0, 1, 3, 5]))
def test_a_kill_in_the_middle_leaves_a_sound_cache_and_the_next_gc_finishes(
    toy, cache, history, survives
):
    history(10)
    folders = _with_directories(toy, cache)
    history(20)
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(survives)],
        cwd=toy.root,
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert cache.damaged() == []
    assert doomed(toy.root / ".dvc/cache") != set()
    gc(toy, "--keep-last", "0")
    assert doomed(toy.root / ".dvc/cache") == set()
    assert cache.sums() == {20, 21, 22}
    assert folders


def _with_directories(toy, cache):
    """Let the ledger say that the last run also made a directory of four files."""
    from posttrain.provenance.dvc import DvcStore

    out = toy.root / "folder"
    out.mkdir()
    for number in range(4):
        (out / str(number)).write_text(f'{{"sum": {100 + number}}}')
    stored = DvcStore(toy.root, toy.root).store([out])[out]
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        run = ledger.stage_runs(ledger.runs()[0].id)[0]
        record = replace(run.outputs[0], digest="d" * 64, md5=stored.md5, path="folder")
        ledger.record(replace(run, id="e" * 32, key="f" * 64, outputs=(record,)))
    return stored.num_files


def test_an_object_that_is_used_after_the_look_stays(toy, cache, history):
    from posttrain.operations.maintenance.claims import Keep
    from posttrain.operations.maintenance.collect import carry_out, make_plan

    history(10, 20)
    folder = toy.root / ".dvc" / "cache"
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        plan = make_plan(toy.root, ledger, folder, Keep(last=0), budget=None, requests=False)
        assert len(plan.decision.pieces) == 3
        time.sleep(0.01)
        # A run comes back to the old results between the look and the removal.
        toy.run("first.amount=10")
        carry_out(plan, lambda _: None)
    assert cache.sums() == {10, 11, 12, 20, 21, 22}
