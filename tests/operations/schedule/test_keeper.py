"""What the notes make of what Prefect says, with a server that only remembers what it was told."""

import json
import shutil
import time
from types import SimpleNamespace

import pytest

from posttrain.operations.schedule import admission
from posttrain.operations.schedule.keeper import Keeper
from posttrain.operations.schedule.notes import open_notes
from posttrain.operations.schedule.outcome import here, run_lock


def last_minute(ago=0):
    return time.time() // 60 * 60 - ago * 60


@pytest.mark.slow
def test_a_tick_in_time_starts_and_its_flow_run_is_the_only_one(desk):
    desk.given(desk.declare())
    due = last_minute()
    run, other = desk.server.add("s", due), desk.server.add("s", due)
    assert desk.cycle(run, other) == [run]
    assert desk.notes.tick("s", due).reason == "its time has come"
    # A second schedule in Prefect's pages, a second worker: there is one run of one instant.
    assert (other.id, "CANCELLED") in desk.server.said


@pytest.mark.parametrize(("missed", "expected"), [("skip", 0), ("latest", 1), ("backfill:3", 3)])
def test_flow_runs_that_piled_up_follow_the_policy(desk, missed, expected):
    desk.given(desk.declare(missed=missed), minutes=10)
    piled = [desk.server.add("s", last_minute(ago)) for ago in range(9, -1, -1)]
    started = desk.cycle(*piled)
    young = [run for run in piled if time.time() - run.expected_start_time.timestamp() <= 120]
    assert started[len(started) - len(young) :] == young
    assert len(started) == expected + len(young)
    # Every instant has its note, and what is not to run is over in Prefect as well.
    ticks = [run.expected_start_time.timestamp() for run in piled]
    assert desk.notes.known("s", ticks[0], ticks) == set(ticks)
    assert {run.id for run in piled} - {run.id for run in started} == {
        run_id for run_id, state in desk.server.said if state in ("CANCELLED", "SKIPPED")
    }


@pytest.mark.parametrize("minutes", [1, 2])
def test_one_that_was_due_just_before_up_is_made_good_though_others_ran_since(
    desk, minutes, monkeypatch
):
    """Due at 54:00, there at 54:34, and decided only at 56:02, once its grace is over."""
    due = last_minute() // 120 * 120
    monkeypatch.setattr(time, "time", lambda: due - 30)
    desk.given(desk.declare(cron=f"*/{minutes} * * * *", missed="latest"))
    for after in (60, 120):
        monkeypatch.setattr(time, "time", lambda now=due + after + 2: now)
        desk.cycle(*[desk.server.add("s", due + after)] * (after % (60 * minutes) == 0))
    made_good = desk.notes.tick("s", due)
    assert made_good.status == "waiting"
    assert made_good.story[0][1].endswith("one of 1; made good by missed: latest")
    assert made_good.data["flow_run_id"] in desk.server.flow_runs


@pytest.mark.parametrize("asked", [True, False])
def test_what_is_missed_is_told_at_once_as_one(desk, tmp_path, asked):
    """Declared five minutes ago, with a grace of two: three minutes are missed, in one notice."""
    on = ("missed",) if asked else ("failure",)
    missing = desk.declare(missed="skip", notify_command="tee told.json", notify_on=on)
    desk.given(missing, minutes=5)
    desk.cycle()
    (tick,) = desk.notes.history("s", limit=9)
    told = tmp_path / "told.json"
    assert told.exists() == asked == tick.reason.endswith("notice given, exit code 0")
    if asked:
        notice = json.loads(told.read_text())
        assert (notice["event"], notice["schedule"], notice["missed"]) == ("missed", "s", 3)


@pytest.mark.slow
def test_a_month_of_minutes_is_settled_at_once_and_one_is_made_good(desk):
    desk.given(desk.declare(missed="backfill:1"))
    desk.notes.add("s", last_minute(43200), "unchanged", "")
    with desk.notes._engine.begin() as connection:
        since = last_minute(43200) - 1
        connection.exec_driver_sql(f"UPDATE decisions SET at = {since} WHERE due = 0")
    begun = time.process_time()
    desk.cycle()
    assert time.process_time() - begun < 5.0
    made_good, skipped = desk.notes.history("s", limit=2)
    assert made_good.reason.endswith("made good by missed: backfill:1")
    assert skipped.reason.startswith("43196 of them") or skipped.reason.startswith("43197 of them")
    # It has a flow run though Prefect had laid out none.
    assert desk.notes.tick("s", made_good.due).data["flow_run_id"] in desk.server.flow_runs
    # Decided once.
    desk.cycle()
    assert [len(desk.notes.tick("s", tick.due).story) for tick in (made_good, skipped)] == [2, 1]


def begun(desk, name="s", **where):
    """A tick whose attempt began, as its process would note it."""
    due = last_minute()
    run = desk.server.add(name, due)
    assert desk.cycle(run) == [run]
    tick = desk.notes.tick(name, due)
    begins = type(tick)(**{**vars(tick), "attempt": 1})
    desk.notes.about(begins, "running", "", claim="begins", **{**here(), **where}, log="the.log")
    run.state_type.value = "RUNNING"
    return run, due


def test_a_run_that_is_gone_is_crashed_and_tried_again_while_a_live_one_is_left(desk):
    desk.given(desk.declare(retry_seconds=0))
    run, due = begun(desk)
    with run_lock(desk.root, "s").acquire():
        desk.cycle()
        assert desk.notes.tick("s", due).status == "running"
    desk.cycle()
    again = desk.notes.tick("s", due)
    assert (again.status, again.num_crashed) == ("waiting", 1)
    assert any("crashed: attempt 1: its process is gone" in said for _, said in again.story)
    assert desk.server.said[-1] == (run.id, "SCHEDULED")


def test_a_run_under_another_name_of_the_machine_blocks_nothing(desk):
    desk.given(desk.declare())
    # The host was renamed: the kernel is the same, and nobody holds the lock.
    _, due = begun(desk, host="before")
    desk.cycle()
    assert desk.notes.tick("s", due).num_crashed == 1


def test_a_run_of_another_machine_is_believed_until_prefect_gives_it_up(desk):
    desk.given(desk.declare())
    run, due = begun(desk, host="other", boot="other")
    desk.cycle()
    assert desk.notes.tick("s", due).status == "running"
    run.state_type.value = "CRASHED"
    desk.cycle()
    assert desk.notes.tick("s", due).num_crashed == 1


def test_an_end_that_prefect_did_not_hear_is_told_later(desk):
    desk.given(desk.declare())
    run, due = begun(desk)
    desk.notes.about(desk.notes.tick("s", due), "succeeded", "done", claim="!")
    desk.cycle()
    assert desk.server.said[-1] == (run.id, "SUCCEEDED")
    assert desk.notes.live() == []


def test_a_failure_is_tried_again_and_then_told_once(desk, tmp_path):
    desk.given(desk.declare(retries=1, retry_seconds=0, notify_command="tee told.json"))
    run, due = begun(desk)
    for attempt in (1, 2):
        tick = desk.notes.tick("s", due)
        desk.notes.about(tick, "failed", "stage 'x' failed", claim="!")
        # Another worker leaves it to the one whose run it is.
        desk.cycle()
        assert desk.notes.tick("s", due).status == "failed"
        desk.keeper.ended(run, None, stopping=False)
        after = desk.notes.tick("s", due)
        assert (after.status, after.over) == (
            ("waiting", False) if attempt == 1 else ("failed", True)
        )
        begins = type(after)(**{**vars(after), "attempt": attempt + 1})
        if attempt == 1:
            desk.notes.about(begins, "running", "", claim="begins", **here())
    assert '"log": "the.log"' in (tmp_path / "told.json").read_text()
    assert desk.server.said[-1] == (run.id, "FAILED")
    before = len(desk.notes.tick("s", due).story)
    desk.cycle()
    assert len(desk.notes.tick("s", due).story) == before


def test_what_is_wrong_with_one_schedule_leaves_the_others_alone(desk):
    desk.given(desk.declare("a"), desk.declare("b"))
    # In Prefect's pages: a's line was edited to one that never comes.
    desk.server.made["a"].schedules[0].schedule.cron = "0 0 29 2 1#1"
    with desk.notes._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE decisions SET at = at - 600 WHERE due = 0")
    run = desk.server.add("b", last_minute())
    assert desk.cycle(run) == [run]
    assert any(line.startswith("a: CroniterBadDateError") for line in desk.lines)
    assert desk.notes.history("a", limit=1)[0].kind == "trouble"
    assert len([line for line in desk.lines if line.startswith("a: Cron")]) == 1


def test_a_deployment_that_was_deleted_is_made_again_and_a_foreign_one_left_alone(desk):
    desk.given(desk.declare("a"))
    desk.server.made.clear()
    desk.cycle()
    assert set(desk.server.made) == {"a"}
    other = desk.root / "elsewhere"
    (other / ".dvc").mkdir(parents=True)
    desk.server.deploy(desk.declare("b"), {"working_dir": str(other)}, paused=False)
    desk.cycle()
    assert set(desk.server.made) == {"a", "b"}
    desk.given(desk.declare("b"))
    assert any(f"is of {other}; give the schedule of one" in line for line in desk.lines)


def test_a_pause_in_prefects_pages_and_one_by_hand(desk):
    desk.given(desk.declare())
    desk.cycle()
    desk.server.made["s"].paused = True
    desk.cycle()
    assert desk.notes.declarations()["s"].paused
    desk.notes.add("s", 0.0, "resumed", "by hand")
    desk.cycle()
    assert not desk.server.made["s"].paused
    desk.notes.add("s", 0.0, "paused", "by hand")
    desk.cycle()
    assert desk.server.made["s"].paused
    desk.cycle()
    desk.server.made["s"].paused = False
    desk.cycle()
    assert not desk.notes.declarations()["s"].paused


def test_what_is_resumed_while_no_worker_is_up_is_not_paused_again(desk):
    desk.given(desk.declare())
    desk.notes.add("s", 0.0, "paused", "by hand")
    desk.cycle()
    assert desk.server.made["s"].paused
    # The worker ends, a word by hand, and the next worker.
    desk.notes.add("s", 0.0, "resumed", "by hand")
    desk.restart()
    desk.cycle()
    desk.cycle()
    assert (desk.server.made["s"].paused, desk.notes.declarations()["s"].paused) == (False, False)
    # In Prefect's pages while no worker is up.
    desk.server.made["s"].paused = True
    desk.restart()
    desk.cycle()
    assert desk.notes.declarations()["s"].paused


def test_a_clock_that_jumps_decides_nothing_until_it_has_stood(desk, monkeypatch):
    desk.given(desk.declare())
    before = desk.notes.history("s")
    now = time.time
    boot = time.clock_gettime
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now() + 86400)
        assert desk.cycle(desk.server.add("s", last_minute(-700))) == []
        assert desk.notes.history("s") == before
        assert "the clock jumped by +86400 s" in desk.lines[-1]
    run = desk.server.add("s", last_minute())
    assert desk.cycle(run) == [run]
    # One that stays is believed after ten minutes.
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now() + 86400)
        desk.cycle()
        patch.setattr(time, "clock_gettime", lambda which: boot(which) + 700)
        patch.setattr(time, "time", lambda: now() + 86400 + 700)
        desk.cycle()
        assert len(desk.notes.history("s")) > 1


def test_after_a_crash_there_may_be_nothing_to_do(desk, monkeypatch):
    desk.given(desk.declare(retry_seconds=0, only_if_moved=True))
    run, due = begun(desk)
    # Gone, and put back.
    desk.cycle()
    assert desk.notes.tick("s", due).status == "waiting"
    for name in ("prepare", "link_inputs"):
        monkeypatch.setattr(admission, name, lambda *_: SimpleNamespace(root=desk.root))
    monkeypatch.setattr(admission, "_unmoved", lambda *_: "no input moved")
    assert admission.begin(desk.keeper, run) is None
    desk.keeper.ended(run, None, stopping=False)
    assert desk.notes.tick("s", due).status == "unchanged"
    assert desk.server.said[-1] == (run.id, "UNCHANGED")


def test_who_is_gone_leaves_a_failure_to_the_next_worker(desk, monkeypatch):
    desk.given(desk.declare(retries=0))
    run, due = begun(desk)
    desk.notes.about(desk.notes.tick("s", due), "failed", "stage 'x' failed", claim="!")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 30)
    desk.cycle()
    assert desk.notes.tick("s", due).over
    assert desk.server.said[-1] == (run.id, "FAILED")


def test_a_process_that_ends_before_it_begins_is_tried_again_and_told(desk):
    desk.given(desk.declare(retries=0, retry_seconds=0, notify_command="tee told.json"))
    due = last_minute()
    run = desk.server.add("s", due)
    assert desk.cycle(run) == [run]
    begun = SimpleNamespace(log=desk.root / "the.log")
    for attempt in range(6):
        assert not desk.notes.tick("s", due).over, attempt
        desk.keeper.ended(run, begun, stopping=False)
    over = desk.notes.tick("s", due)
    assert (over.status, over.over, over.num_crashed) == ("crashed", True, 6)
    assert "the.log" in (desk.root / "told.json").read_text()
    assert desk.server.said[-1] == (run.id, "CRASHED")


def test_runs_of_another_project_on_this_prefect_server_are_left_alone(desk):
    desk.given(desk.declare("mine"))
    theirs = {"working_dir": "/elsewhere", "notes": "another"}
    for name in ("mine", "theirs"):
        desk.server.deploy(desk.declare(name), theirs, paused=False)
    runs = [desk.server.add(name, last_minute()) for name in ("mine", "theirs")]
    assert desk.cycle(*runs) == []
    assert desk.server.said == []
    assert set(desk.server.made) == {"mine", "theirs"}
    told = "'mine' of this Prefect server is of /elsewhere; give"
    assert len([line for line in desk.lines if told in line]) == 1
    # Nor is a run asked of theirs, and what is wrong is said once.
    desk.notes.add("mine", last_minute() + 1, "waiting", "asked for by hand", kind="manual")
    desk.cycle()
    desk.cycle()
    assert len(desk.server.flow_runs) == 2
    assert len([line for line in desk.lines if told in line]) == 1


def test_two_clones_that_share_notes_share_the_deployment(desk, tmp_path_factory):
    desk.given(desk.declare(missed="backfill:9"), minutes=10)
    made = desk.server.made["s"]
    clone = tmp_path_factory.mktemp("clone")
    other = Keeper(clone, desk.notes, desk.server, desk.lines.append)
    run = desk.server.add("s", last_minute())
    assert other.cycle([run]) == [run]
    desk.cycle()
    # Neither takes it from the other, again and again; what was missed is decided.
    assert desk.server.made["s"] is made
    assert len(desk.notes.history("s", limit=100)) > 5


def test_a_copy_of_a_project_takes_no_deployment_of_the_original(desk, tmp_path_factory):
    desk.given(desk.declare())
    (desk.root / ".dvc").mkdir()
    copy = tmp_path_factory.mktemp("copy") / "project"
    shutil.copytree(desk.root, copy)
    with open_notes(copy) as notes:
        assert notes.id == desk.notes.id
        Keeper(copy, notes, desk.server, desk.lines.append).cycle([])
    assert f"is of {desk.root}; give the schedule" in desk.lines[-1]


def test_a_clock_that_was_taken_away_in_prefects_pages_comes_back_with_a_resume(desk):
    desk.given(desk.declare())
    desk.cycle()
    desk.server.made["s"].schedules = []
    desk.cycle()
    assert desk.notes.declarations()["s"].paused
    desk.notes.add("s", 0.0, "resumed", "by hand")
    desk.cycle()
    desk.cycle()
    assert not desk.notes.declarations()["s"].paused
    assert [each.active for each in desk.server.made["s"].schedules] == [True]


def test_what_prefects_limit_of_one_makes_of_a_run_is_said_as_it_is(desk):
    """Prefect cancels what is too many when it is to start, or later on, as it is late."""
    desk.given(desk.declare())
    due = last_minute()
    run = desk.server.add("s", due)
    assert desk.cycle(run) == [run]
    run.state_name = "AwaitingConcurrencySlot"
    desk.cycle()
    desk.cycle()
    waiting = desk.notes.tick("s", due)
    assert (waiting.status, len(waiting.story)) == ("waiting", 2)
    assert waiting.reason == "queued: the run before it still runs"
    run.state_type.value, run.state_name = "CANCELLED", "Cancelled"
    run.state.message = "Deployment concurrency limit reached."
    desk.cycle()
    skipped = desk.notes.tick("s", due)
    assert (skipped.status, skipped.over) == ("skipped", True)
    assert skipped.reason == "the run before it still runs (overlap: cancel)"


def test_a_run_that_was_cancelled_in_prefects_pages_is_over(desk):
    desk.given(desk.declare())
    due = last_minute()
    run = desk.server.add("s", due)
    assert desk.cycle(run) == [run]
    run.state_type.value, run.state.message = "CANCELLED", None
    desk.cycle()
    tick = desk.notes.tick("s", due)
    assert (tick.status, tick.reason) == ("cancelled", "cancelled in Prefect")


def test_notes_that_were_lost_leave_the_deployment_to_the_new_ones(desk):
    desk.given(desk.declare())
    desk.server.made["s"].job_variables["notes"] = "the lost ones"
    desk.cycle()
    assert desk.server.made["s"].job_variables["notes"] == desk.notes.id
