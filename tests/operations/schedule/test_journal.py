"""The journal: one row for a tick, whoever asks and however often; in SQLite and PostgreSQL."""

import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from posttrain.operations.schedule.journal import open_journal
from posttrain.stage.errors import UserError

NOW = 1_700_000_000.25


def test_a_schedule_comes_back_as_it_was_put(journal, declare):
    full = declare(
        on_missed="backfill", backfill=3, watch=("file:a", "sql:u#q"), overrides=("a.b=1",),
        release="r", notify_url="http://x", notify_command="mail me", collision="cancel-new",
        timezone="Europe/Berlin", only_if_moved=True, retries=4, since=NOW,
    )  # fmt: skip
    journal.put(full)
    assert journal.schedules() == [full]
    journal.put(replace(full, paused=True))
    assert journal.schedule("s").paused
    journal.remove("s")
    assert journal.schedules() == []
    assert journal.deployed() == {"s": (None, True)}


def test_an_unknown_name_is_answered_with_the_nearest(journal, declare):
    journal.put(declare("nightly"))
    with pytest.raises(UserError, match="no schedule 'nigthly'; did you mean 'nightly'"):
        journal.schedule("nigthly")


def test_twenty_writers_make_one_row_and_one_of_them_gets_it(journal):
    made, taken = [], []

    def write(number):
        tick = journal.add("s", NOW, kind="scheduled", status="waiting", reason=f"{number}")
        made.append(tick)
        seen = journal.find("s", NOW)
        claimed = journal.change(
            replace(seen, status="waiting", process=None, attempt=0),
            {"status": "running", "process": f"h {number} b", "attempt": 1},
        )
        taken.append(claimed)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [tick for tick in made if tick is not None]
    (holder,) = [tick for tick in taken if tick is not None]
    assert len(made) == len(taken) == 20
    assert journal.history() == [replace(holder)]
    assert journal.tick(winner.num).process == holder.process
    assert journal.story(winner)[0][1] == f"waiting: {winner.reason}"


def test_a_stale_view_changes_nothing(journal):
    tick = journal.add("s", NOW, kind="scheduled", status="waiting", reason="r")
    running = journal.change(tick, {"status": "running", "process": "h 1 b", "attempt": 1})
    assert running is not None
    assert journal.change(tick, {"status": "running", "process": "h 2 b", "attempt": 1}) is None
    other = replace(running, process="h 2 b")
    assert journal.change(other, {"status": "succeeded"}) is None
    assert journal.tick(tick.num).process == "h 1 b"
    assert journal.change(running, {"status": "succeeded", "reason": "done"}).status == "succeeded"
    assert [said for _, said in journal.story(tick)] == ["waiting: r", "succeeded: done"]


def test_what_is_live_what_was_last_and_what_is_known(journal):
    add = journal.add
    add("s", NOW, kind="scheduled", status="succeeded", reason="")
    add("s", NOW + 60, kind="scheduled", status="skipped", reason="")
    waiting = add("s", NOW + 120, kind="scheduled", status="waiting", reason="")
    manual = add("s", NOW + 200, kind="manual", status="waiting", reason="")
    failed = add("s", NOW + 240, kind="scheduled", status="waiting", reason="")
    failed = journal.change(failed, {"status": "failed", "settled": False})
    add("t", NOW + 999, kind="scheduled", status="running", reason="")
    assert [tick.num for tick in journal.live()][:3] == [waiting.num, manual.num, failed.num]
    assert journal.last_scheduled("s") == NOW + 240
    assert journal.last_success("s").due == NOW
    assert journal.known("s", NOW + 100) == {NOW + 120, NOW + 200, NOW + 240}
    assert [tick.due for tick in journal.history("s", limit=2)] == [NOW + 240, NOW + 200]


def test_a_locked_database_is_waited_for(tmp_path):
    place = tmp_path / "j.db"
    with open_journal(f"sqlite:///{place}") as journal:
        holder = subprocess.Popen(
            [
                sys.executable, "-c",
                "import sqlite3, sys, time\n"
                f"c = sqlite3.connect({str(place)!r}, isolation_level=None)\n"
                "c.execute('BEGIN EXCLUSIVE')\nprint('held', flush=True)\ntime.sleep(2)\n",
            ],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        assert holder.stdout.readline() == b"held\n"
        begun = time.monotonic()
        assert journal.add("s", NOW, kind="manual", status="waiting", reason="") is not None
        assert time.monotonic() - begun > 1
        holder.wait()


def test_a_place_that_cannot_be_opened_is_said(tmp_path):
    (tmp_path / "j.db").mkdir()
    with pytest.raises(UserError, match="the schedule journal .* cannot be opened: unable to open"):
        open_journal(f"sqlite:///{tmp_path / 'j.db'}")
