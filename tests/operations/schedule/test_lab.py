"""Schedules on Prefect's own server, scheduler and worker, as a user has them."""

import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from posttrain.operations.schedule.outcome import run_lock

pytestmark = pytest.mark.timeout(900)


def waiting(tree):
    """Folders in which a stage waits; one that goes away meanwhile is none (`rglob` raises)."""
    return [Path(folder) for folder, _, files in os.walk(tree) if "waiting" in files]


@pytest.mark.slow
def test_every_minute_by_prefects_clock_and_what_did_not_move_starts_no_process(lab):
    lab.declare(plain={"cron": "* * * * *"}, idle={"cron": "* * * * *", "only_if_moved": True})
    listed = lab.schedule("list").stdout  # the worker may have seen the commit before `apply`
    assert "plain" in listed
    assert "idle" in listed
    first = lab.tick("plain", "succeeded")
    assert first.kind == "scheduled"
    assert lab.until(lambda: lab.flow_run(first)["state_type"] == "COMPLETED")
    assert lab.flow_run(first)["auto_scheduled"]
    unchanged = lab.tick("idle", "unchanged")
    assert "no input moved since the run of " in unchanged.reason
    assert unchanged.started is None
    run = lab.until(lambda: (r := lab.flow_run(unchanged)) and r["state_name"] == "Unchanged" and r)
    assert run["deployment_id"] == lab.deployment("idle")["id"]
    shown = lab.schedule("history").stdout
    assert "unchanged" in shown
    assert "succeeded" in shown


@pytest.mark.slow
@pytest.mark.core
def test_a_killed_run_is_made_again_and_a_failure_told(lab):
    lab.declare(
        killed={"cron": "0 0 1 1 *", "retry_seconds": 0, "overrides": ["second.mood=wait"]},
        broken={"cron": "0 0 1 1 *", "retries": 0, "overrides": ["first.mood=fail"],
                "notify_command": "tee told.json"},
    )  # fmt: skip
    lab.schedule("run", "killed")
    lab.schedule("run", "broken")
    failed = lab.tick("broken", "failed")
    assert "told to fail" in failed.reason
    lab.until(lambda: (lab.root / "told.json").is_file() and (lab.root / "told.json").read_text())
    assert lab.until(lambda: lab.flow_run(failed)["state_type"] == "FAILED")
    running = lab.tick("killed", "running")
    tree = lab.root / ".posttrain/worktrees/killed/tree"
    lab.until(lambda: waiting(tree))
    pid = int(lab.flow_run(running)["infrastructure_pid"])
    os.kill(pid, signal.SIGKILL)
    lab.until(lambda: lab.ticks("killed")[0].num_crashed == 1)
    again = lab.until(lambda: (t := lab.ticks("killed")[0]).status == "running" and t)
    assert again.attempt == 2

    def go():
        for folder in waiting(tree):
            (folder / "go").touch()
        return lab.ticks("killed")[0].status == "succeeded"

    lab.until(go)
    done = lab.ticks("killed")[0]
    said = [line for _, line in done.story]
    assert sum(line.startswith("crashed: attempt 1") for line in said) == 1
    assert sum(line.startswith("succeeded: ") for line in said) == 1
    assert lab.until(lambda: lab.flow_run(done)["state_type"] == "COMPLETED")


@pytest.mark.slow
def test_cancelled_by_hand_frees_the_schedule(lab):
    # Of another key than what was made above: that would be restored, and end at once.
    lab.declare(stuck={"cron": "0 0 1 1 *", "overrides": ["second.mood=wait for ever"]})
    lab.schedule("run", "stuck")
    running = lab.tick("stuck", "running")
    assert "1 cancelled" in lab.schedule("cancel", "stuck").stdout
    lab.until(lambda: not run_lock(lab.root, "stuck").is_locked and _is_free(lab, "stuck"))
    assert lab.until(lambda: lab.flow_run(running)["state_type"] == "CANCELLED")
    assert lab.tick("stuck", "cancelled").reason == "cancelled by hand"


@pytest.mark.slow
def test_what_comes_while_the_run_before_still_runs_is_left_out_or_queued(lab):
    waits = {"cron": "0 0 1 1 *", "overrides": ["second.mood=wait and wait"]}
    lab.declare(alone={**waits, "overlap": "cancel"}, queue=waits)
    lab.schedule("run", "alone")
    lab.tick("alone", "running")
    lab.schedule("run", "alone")
    assert lab.tick("alone", "skipped").reason == "the run before it still runs (overlap: cancel)"
    lab.schedule("cancel", "alone")
    lab.schedule("run", "queue")
    lab.tick("queue", "running")
    lab.schedule("run", "queue")
    lab.until(lambda: lab.ticks("queue")[-1].reason == "queued: the run before it still runs")
    assert "2 cancelled" in lab.schedule("cancel", "queue").stdout
    lab.until(lambda: [tick.status for tick in lab.ticks("queue")] == ["cancelled"] * 2)


def _is_free(lab, name):
    from filelock import Timeout

    try:
        with run_lock(lab.root, name).acquire(timeout=0):
            return True
    except Timeout:
        return False


@pytest.mark.slow
def test_of_two_workers_one_runs_what_is_due(lab):
    first, lab.worker = lab.worker, None
    lab.start_worker()
    try:
        lab.declare(one={"cron": "0 0 1 1 *"})
        for _ in range(3):
            lab.schedule("run", "one")
        lab.until(lambda: [t.status for t in lab.ticks("one")] == ["succeeded"] * 3)
    finally:
        lab.kill(first, signal.SIGTERM)
    for tick in lab.ticks("one"):
        said = [line for _, line in tick.story]
        assert (said.count("attempt 1 starts"), tick.attempt, tick.num_crashed) == (1, 1, 0)
        assert lab.until(lambda tick=tick: lab.flow_run(tick)["state_type"] == "COMPLETED")


@pytest.mark.slow
def test_a_locked_database_of_prefect_is_waited_for(lab):
    lab.declare(patient={"cron": "0 0 1 1 *"})
    lab.until(lambda: lab.deployment("patient"))
    held = sqlite3.connect(lab.root / ".posttrain/prefect/prefect.db", isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    lab.schedule("run", "patient")
    time.sleep(15)
    held.rollback()
    held.close()
    assert lab.tick("patient", "succeeded").num_failed == 0
    assert lab.worker.poll() is None


@pytest.mark.slow
def test_a_corrupt_database_of_prefect_is_said_and_one_that_is_lost_made_anew(lab):
    lab.declare(lost={"cron": "0 0 1 1 *"})
    before = lab.until(lambda: lab.deployment("lost"))
    lab.kill(lab.server, signal.SIGTERM)
    for file in (lab.root / ".posttrain/prefect").glob("prefect.db*"):
        file.unlink()
    (lab.root / ".posttrain/prefect/prefect.db").write_text("garbage" * 1000)
    corrupt = lab._start("corrupt", *lab._serve)
    assert corrupt.wait(90) != 0
    assert "file is not a database" in (lab.root / ".posttrain/corrupt.log").read_text()
    # What is asked for meanwhile is in the notes; the worker says in a line that it waits.
    assert lab.schedule("run", "lost").returncode == 0
    log = lab.root / ".posttrain/worker.log"
    lab.until(lambda: "trying again: ConnectError" in log.read_text())
    assert lab.worker.poll() is None
    (lab.root / ".posttrain/prefect/prefect.db").unlink()
    lab.start_server()
    assert lab.tick("lost", "succeeded").attempt == 1
    assert lab.deployment("lost")["id"] != before["id"]


@pytest.mark.slow
def test_two_projects_share_a_server_and_its_pool(lab, neighbor):
    yearly = {"cron": "0 0 1 1 *"}
    lab.declare(mine=yearly, common=yearly)
    lab.until(lambda: lab.deployment("mine") and lab.deployment("common"))
    neighbor.declare(theirs=yearly, common=yearly)
    lab.until(lambda: lab.deployment("theirs"))
    for each, name in ((lab, "mine"), (neighbor, "theirs"), (lab, "common")):
        each.schedule("run", name)
        assert each.tick(name, "succeeded").attempt == 1
    # A name that both declare is the first one's; the other is told, and does nothing about it.
    assert [tick.kind for tick in neighbor.ticks("common")] == ["trouble"]
    assert f"is of {lab.root}; give the schedule" in neighbor.ticks("common")[0].reason
    assert not [tick for tick in lab.ticks(None) if tick.status in ("skipped", "cancelled")
                and tick.schedule in ("mine", "common")]  # fmt: skip
