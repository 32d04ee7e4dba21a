"""What goes wrong while stages run: kills at any moment, full disks, clocks, rights, crowds."""

import contextlib
import errno
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from multiprocessing import forkserver
from pathlib import Path

import pytest

from posttrain.pipeline.execution.failures import StageFailed
from posttrain.provenance.dvc import DvcStore
from posttrain.provenance.ledger import open_ledger
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import digest_path
from tests.quick import first_now

STAGES = ("first", "second", "third")
# Importing MLflow takes longer than all else here, and has no part in any of it.
QUIET = {**os.environ, "POSTTRAIN_TRACKING": "off"}
RUN = [sys.executable, "-m", "posttrain", "run", "--local"]
_KILLS = first_now(range(50))


def sums(root):
    return [json.loads((root / f"data/{name}/result.json").read_text())["sum"] for name in STAGES]


def check_whole(toy, amounts):
    """Published outputs are entire, and whatever the ledger calls a success is in the cache."""
    store = DvcStore(toy.root, toy.root)
    for position, name in enumerate(STAGES, start=1):
        path = toy.root / f"data/{name}/result.json"
        if path.exists():
            allowed = {amount * position for amount in amounts}
            assert json.loads(path.read_text())["sum"] in allowed
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        for record in ledger.every_stage_run():
            assert record.status in ("succeeded", "failed", "cached", "restored")
            assert all(store.has(output.md5) for output in record.outputs)
            assert bool(record.outputs) == (record.status != "failed")
        return [run.status for run in ledger.runs()]


def check_next_run(toy, amount):
    """The next run completes, and leaves no trace of the one that was killed."""
    toy.run()
    assert sums(toy.root) == [amount, 2 * amount, 3 * amount]
    assert DvcStore(toy.root, toy.root).status() == []
    assert not list((toy.root / ".posttrain/staging").rglob("*.json"))
    assert toy.run() == {}


def all_amounts(amount):
    return (
        f"first: {{amount: {amount}}}\nsecond: {{amount: {amount}}}\nthird: {{amount: {amount}}}\n"
    )


@pytest.mark.parametrize("seed", _KILLS)
def test_the_executor_killed_at_any_moment(toy, seed):
    toy.run()
    toy.recipe(all_amounts(7))
    logs = toy.root / ".posttrain/runs"
    before = set(logs.iterdir())
    process = subprocess.Popen(
        RUN, cwd=toy.root, env=QUIET, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    while process.poll() is None and not set(logs.iterdir()) - before:
        time.sleep(0.002)
    time.sleep(random.Random(seed).uniform(0.0, 0.4))
    process.kill()
    process.communicate()
    assert check_whole(toy, {1, 7})[0] in ("killed", "succeeded")
    check_next_run(toy, 7)


@pytest.mark.parametrize("seed", _KILLS)
def test_a_stage_killed_at_any_moment(toy, seed):
    toy.run()
    toy.recipe(all_amounts(7))
    chance = random.Random(seed)
    with children_killed(after=chance.uniform(0.0, 0.05), victim=chance.randrange(3)) as killed:
        failures = []
        try:
            toy.run()
        except StageFailed as failure:
            failures.append(failure)
    assert killed
    # A kill after the stage's last word comes too late to matter.
    assert all("was killed by SIGKILL" in str(failure) for failure in failures)
    assert all(failure.retryable for failure in failures)
    assert check_whole(toy, {1, 7})[0] == ("failed" if failures else "succeeded")
    check_next_run(toy, 7)


@contextlib.contextmanager
def children_killed(*, after, victim):
    """Kill the stage process number `victim` that the fork server starts, some seconds later."""
    server = forkserver._forkserver._forkserver_pid
    children = Path(f"/proc/{server}/task/{server}/children")
    seen, killed, over = [], [], threading.Event()

    def hunt():
        while not over.is_set() and not killed:
            for pid in children.read_text().split():
                if pid not in seen:
                    seen.append(pid)
                if seen.index(pid) == victim:
                    time.sleep(after)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), 9)
                    killed.append(pid)

    hunter = threading.Thread(target=hunt)
    hunter.start()
    yield killed
    over.set()
    hunter.join()


def test_a_disk_that_is_full_while_publishing_is_said_and_the_old_output_stays(toy, monkeypatch):
    toy.run()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("posttrain.stage.files.os.fsync", full)
        with pytest.raises(
            UserError, match=r"no space left on the disk of .*data.first; free some"
        ):
            toy.run("first.amount=5")
    assert sums(toy.root) == [1, 2, 3]
    assert list((toy.root / ".posttrain/staging/root").iterdir()) == []
    toy.run("first.amount=5")
    assert sums(toy.root) == [5, 6, 7]


def test_a_flipped_byte_in_the_cache_is_found_named_and_made_again(toy):
    record = toy.run()["second"].outputs[0]
    stored = toy.root / ".dvc/cache/files/md5" / record.md5[:2] / record.md5[2:]
    content = bytearray(stored.read_bytes())
    content[0] ^= 1
    stored.chmod(0o644)
    stored.write_bytes(content)
    (toy.root / record.path).unlink()
    with pytest.raises((UserError, StageFailed), match=f"{record.md5[2:]} is damaged"):
        toy.run()
    assert toy.run()["second"].status == "succeeded"
    assert sums(toy.root) == [1, 2, 3]


@pytest.mark.slow
def test_a_clock_that_goes_backwards_changes_no_decision(toy, monkeypatch):
    toy.run()
    now = time.time
    with monkeypatch.context() as patched:
        patched.setattr("time.time", lambda: now() - 86_400)
        assert toy.run("second.amount=10")["second"].status == "succeeded"
        assert toy.run("second.amount=10") == {}
        with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
            assert ledger.history.latest("second").components["params"]["amount"] == "10"
            assert min(ledger.history.durations(list(STAGES)).values()) >= 0
    assert toy.run("second.amount=10") == {}
    assert sums(toy.root) == [1, 11, 12]


def test_a_symbolic_link_to_the_workspace_is_the_workspace(toy, tmp_path_factory):
    link = tmp_path_factory.mktemp("elsewhere") / "link"
    link.symlink_to(toy.root)
    real, toy.root = toy.root, link
    toy.run()
    assert sums(real) == [1, 2, 3]
    assert toy.run() == {}
    toy.root = real
    assert toy.run() == {}
    assert DvcStore(real, real).status() == []


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs another user")
def test_a_read_only_workspace_gets_one_sentence_and_nothing_is_written(toy, public_path):
    toy.run()
    toy.recipe(all_amounts(7))
    root = shutil.copytree(toy.root, public_path / "toy", symlinks=True)
    root.chmod(0o755)
    before = digest_path(root).sha256
    other = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    environment = {**QUIET, "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*other, *RUN], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Permission denied; make the workspace writable" in done.stderr
    assert digest_path(root).sha256 == before


@pytest.mark.slow
@pytest.mark.core
def test_twenty_runs_at_once_in_one_workspace(toy):
    crowd = [
        subprocess.Popen(
            RUN, cwd=toy.root, env=QUIET, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(20)
    ]
    said = [process.communicate(timeout=240)[1] for process in crowd]
    codes = [process.returncode for process in crowd]
    assert 0 in codes
    assert set(codes) <= {0, 2}
    for code, text in zip(codes, said, strict=True):
        assert code == 0 or "is locked by" in text, text
        assert code == 2 or "done in" in text, text
    assert sums(toy.root) == [1, 2, 3]
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        recorded = [(record.stage, record.status) for record in ledger.every_stage_run()]
    assert sorted(recorded) == [(name, "succeeded") for name in sorted(STAGES)]


@pytest.mark.slow
def test_twenty_worktrees_that_share_a_cache_and_a_ledger(toy, tmp_path_factory):
    shared = tmp_path_factory.mktemp("shared")
    toy.write(".dvc/config", f"[core]\n    analytics = false\n[cache]\n    dir = {shared}/cache\n")
    who = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*who, *command], cwd=toy.root, check=True)
    trees = [shared / f"tree{number}" for number in range(20)]
    for tree in trees:
        subprocess.run([*who, "worktree", "add", "-q", "--detach", tree], cwd=toy.root, check=True)
    environment = {**QUIET, "POSTTRAIN_LEDGER": f"{shared}/ledger.db"}
    crowd = [
        subprocess.Popen(
            RUN,
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for tree in trees
    ]
    said = [process.communicate(timeout=280)[1] for process in crowd]
    assert [process.returncode for process in crowd] == [0] * 20, said
    assert [sums(tree) for tree in trees] == [[1, 2, 3]] * 20
    with open_ledger(f"{shared}/ledger.db") as ledger:
        runs = ledger.runs()
        assert [run.status for run in runs] == ["succeeded"] * 20
        told = [{record.stage for record in ledger.stage_runs(run.id)} for run in runs]
    assert told == [set(STAGES)] * 20
