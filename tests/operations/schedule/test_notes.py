"""Notes are appended, never changed; a claim is made once, by whoever; on both databases."""

import sqlite3
import threading
import time

import pytest

from posttrain.operations.schedule.notes import open_notes
from posttrain.stage.errors import UserError

NOON = 1_700_000_000.25


def test_a_tick_is_what_its_notes_add_up_to(notes):
    notes.add("s", NOON, "waiting", "its time has come", flow_run_id="f")
    (tick,) = notes.live()
    begins = type(tick)(**{**vars(tick), "attempt": 1})
    assert notes.about(begins, "running", "", claim="begins", log="l")
    running = notes.tick("s", NOON)
    assert (running.status, running.attempt, running.reason) == ("running", 1, "its time has come")
    notes.about(running, "crashed", "killed", claim="!")
    crashed = notes.tick("s", NOON)
    assert (crashed.status, crashed.over, crashed.num_crashed) == ("crashed", False, 1)
    assert notes.live() == [crashed]
    notes.about(crashed, "over", "no attempt is left")
    assert notes.live() == []
    over = notes.tick("s", NOON)
    assert (over.status, over.over, over.data) == (
        "crashed",
        True,
        {"flow_run_id": "f", "log": "l"},
    )
    assert [said for _, said in over.story] == [
        "its time has come", "attempt 1 starts", "crashed: killed", "no attempt is left",
    ]  # fmt: skip


def test_an_attempt_begins_and_ends_once_whoever_believes_to_have_it(notes):
    notes.add("s", NOON, "waiting", "")
    tick, won = notes.tick("s", NOON), []

    def claim(number):
        won.extend([number] * notes.about(tick, "running", "", claim="begins"))

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert notes.about(tick, "succeeded", "first", claim="!")
    assert not notes.about(tick, "crashed", "later", claim="!")
    assert notes.tick("s", NOON).reason == "first"


def test_who_comes_at_the_same_instant_makes_the_tables_once(tmp_path):
    together, refused = threading.Barrier(8), []

    def come(number):
        together.wait()
        try:
            with open_notes(tmp_path) as notes:
                notes.add(f"s{number}", NOON, "waiting", "")
        except UserError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=come, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == []
    with open_notes(tmp_path) as notes:
        assert len(notes.live()) == 8


def test_what_is_cancelled_does_not_begin_and_does_not_end_otherwise(notes):
    notes.add("s", NOON, "waiting", "")
    waiting = notes.tick("s", NOON)
    begins = type(waiting)(**{**vars(waiting), "attempt": 1})
    assert notes.about(begins, "running", "", claim="begins")
    # It began meanwhile, so that its end is to be taken.
    assert not notes.cancel(waiting)
    running = notes.tick("s", NOON)
    assert notes.cancel(running)
    assert not notes.about(running, "succeeded", "done", claim="!")
    assert (notes.tick("s", NOON).status, notes.tick("s", NOON).over) == ("cancelled", True)
    notes.add("s", NOON + 60, "waiting", "")
    assert notes.cancel(notes.tick("s", NOON + 60))
    late = type(waiting)(**{**vars(begins), "due": NOON + 60})
    assert not notes.about(late, "running", "", claim="begins")


def test_a_month_of_minutes_is_one_note_and_read_as_each_of_them(notes):
    notes.add("s", NOON, "skipped", "43200 of them", until=NOON + 60 * 43199)
    minutes = [NOON + 60 * number for number in range(-1, 43201)]
    assert notes.known("s", NOON, minutes) == set(minutes[1:-1])
    assert notes.known("other", NOON, minutes) == set()
    assert len(notes.history("s")) == 1


def test_what_a_clock_that_was_ahead_wrote_is_not_believed(notes, monkeypatch):
    now = time.time()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now + 86400)
        notes.add("s", now + 60, "skipped", "missed by 24 h")
    assert notes.known("s", now, [now + 60]) == set()
    assert notes.watermark("s") == 0.0


def test_declarations_and_since_when_they_count(notes):
    notes.add("s", 0.0, "declared", "", declaration="one")
    since = notes.declarations()["s"].since
    notes.add("s", 0.0, "changed", "", declaration="two")
    assert notes.declarations()["s"] == type(notes.declarations()["s"])("s", "two", since)
    notes.add("s", 0.0, "paused", "")
    assert notes.declarations()["s"].paused
    notes.add("s", 0.0, "resumed", "")
    resumed = notes.declarations()["s"]
    assert (resumed.paused, resumed.since > since) == (False, True)
    notes.add("s", 0.0, "removed", "")
    assert notes.declarations() == {}
    assert notes.history() == []


def test_a_damaged_file_is_one_sentence(tmp_path):
    (tmp_path / ".posttrain").mkdir()
    (tmp_path / ".posttrain/schedules.db").write_bytes(b"garbage" * 1000)
    said = r"schedules.db cannot be used: file is not a database; "
    with pytest.raises(UserError, match=said), open_notes(tmp_path) as notes:
        notes.history()


def test_the_history_of_0_1_is_still_read(tmp_path):
    (tmp_path / ".posttrain").mkdir()
    with sqlite3.connect(tmp_path / ".posttrain/schedules.db") as old:
        names = "schedule, due, kind, status, reason, attempt, started, ended, run_id"
        old.execute(f"CREATE TABLE ticks ({names})")
        row = ("n", 5.0, "scheduled", "failed", "it broke", 2, 5, 9, "r")
        old.execute("INSERT INTO ticks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    with open_notes(tmp_path) as notes:
        notes.add("n", 7.0, "skipped", "missed")
        new, old = notes.history("n")
        assert (new.due, old.due, old.status, old.reason) == (7.0, 5.0, "failed", "it broke")
        assert notes.live() == []
