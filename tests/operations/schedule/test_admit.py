"""Admission of ticks: missed, queued behind a living run, taken over from a dead one."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from posttrain.operations.schedule.admit import admit, settle_missed
from posttrain.provenance.ledger.processes import process_named

MINUTE = 60.0


@pytest.fixture
def now():
    """The last full minute, which stays the last one until the test is over."""
    left = MINUTE - time.time() % MINUTE
    if left < 6:
        time.sleep(left + 0.01)
    return time.time() // MINUTE * MINUTE


@pytest.fixture
def other():
    """A process that lives until its pipe is closed."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.communicate()


def ask(journal, schedule, due, run="f1", **more):
    return admit(journal, schedule, due, flow_run_id=run, root=Path.cwd(), **more)


def test_a_tick_in_time_runs_once(journal, declare, now):
    schedule = declare(since=now)
    first = ask(journal, schedule, now)
    assert (first.answer, first.tick.attempt, first.tick.status) == ("run", 1, "running")
    assert ask(journal, schedule, now).answer == "over"
    # A second flow run of the same instant gets nothing, also when the first is done.
    assert ask(journal, schedule, now, run="f2").answer == "over"
    journal.change(first.tick, {"status": "succeeded"})
    assert ask(journal, schedule, now, run="f2").answer == "over"
    assert len(journal.history()) == 1


@pytest.mark.parametrize(
    ("missed", "backfill", "expected"),
    [("skip", 0, []), ("latest", 0, []), ("backfill", 3, [6, 7, 8])],
)
def test_flow_runs_that_piled_up_follow_the_policy(
    journal, declare, now, missed, backfill, expected
):
    # Every minute for ten minutes. The last two are due, not missed: they are the latest.
    schedule = declare(since=now - 600, on_missed=missed, backfill=backfill)
    dues = [now - 600 + number * MINUTE for number in range(9)]
    ran = []
    for number, due in enumerate(dues):
        answer = ask(journal, schedule, due, run=f"f{number}")
        assert answer.answer in ("run", "over")
        if answer.answer == "run":
            ran.append(number)
            journal.change(answer.tick, {"status": "succeeded"})
    assert ran == expected
    rows = journal.history()
    assert sorted(row.due for row in rows) == dues
    assert all(f"--on-missed {schedule.missed()}" in row.reason for row in rows)


def test_the_second_waits_or_is_left_out_while_the_first_lives(journal, declare, now, other):
    schedule = declare(since=now - MINUTE)
    first = ask(journal, schedule, now - MINUTE).tick
    first = journal.change(first, {"process": process_named(other.pid)})
    waits = ask(journal, schedule, now, run="f2")
    assert waits.answer == "wait"
    assert waits.tick.reason.startswith("queued behind the run of ")
    # It was asked for in time: however long the first takes, it is not a missed one.
    late = declare(since=now - MINUTE, on_missed="skip", grace_seconds=0.0)
    assert settle_missed(journal, late, time.time() + 1) == []
    other.communicate()
    assert ask(journal, schedule, now, run="f2").answer == "run"

    cancelling = declare("c", since=now - MINUTE, collision="cancel-new")
    assert ask(journal, cancelling, now - MINUTE, run="f3").answer == "run"
    left_out = ask(journal, cancelling, now, run="f4")
    assert (left_out.answer, left_out.tick.status) == ("over", "skipped")
    assert "still runs (--concurrency 1:cancel-new)" in left_out.tick.reason


def test_a_full_worker_only_writes_the_tick_down(journal, declare, now):
    schedule = declare(since=now)
    assert ask(journal, schedule, now, room=False).answer == "wait"
    assert journal.history()[0].status == "waiting"
    assert ask(journal, schedule, now).answer == "run"


def test_a_run_laid_out_for_a_schedule_that_changed_is_void(journal, declare, now):
    half = now - 30.0
    void = ask(journal, declare(since=now - 600), half)
    assert (void.answer, void.tick.status) == ("over", "skipped")
    assert "changed or paused since this run was laid out" in void.tick.reason
    paused = ask(journal, declare("p", since=now - 600, paused=True), now)
    assert paused.tick.reason == "the schedule is paused"
