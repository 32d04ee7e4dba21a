"""A run whose process stands still is found and ended; one that only takes long is not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from posttrain.operations.schedule import heartbeat
from posttrain.operations.schedule.heartbeat import Watch, heartbeat_file
from posttrain.operations.schedule.running import kill_hung
from posttrain.provenance.ledger.processes import is_gone, process_named

RUN = """
import time
from posttrain.operations.schedule import heartbeat
heartbeat._HEARTBEAT_SECONDS = 0.05
with heartbeat.sending_heartbeats():
    print("here", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def running(journal, tmp_path):
    """A tick with a real process that beats, as a session of its own."""
    made = []

    def start():
        tick = journal.add("s", time.time(), kind="manual", status="waiting", reason="r")
        process = subprocess.Popen(
            [sys.executable, "-c", RUN],
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, heartbeat.ENVIRONMENT: str(heartbeat_file(tmp_path, tick))},
        )
        made.append(process)
        assert process.stdout.readline() == b"here\n"
        values = {"status": "running", "process": process_named(process.pid), "attempt": 1}
        return process, journal.change(tick, values)

    yield start
    for process in made:
        process.kill()
        process.communicate()


def test_a_process_that_was_stopped_is_ended_and_counts_as_crashed(journal, running, tmp_path):
    now = [0.0]
    watch = Watch(tmp_path, 120.0, clock=lambda: now[0])
    (well, _), (hung, tick) = running(), running()
    os.kill(hung.pid, signal.SIGSTOP)
    time.sleep(0.2)
    for now[0] in (0.0, 60.0, 119.0):
        assert kill_hung(journal, watch) == []
        time.sleep(0.2)
    now[0] = 121.0
    (stopped,) = kill_hung(journal, watch)
    assert stopped.num == tick.num
    assert (stopped.status, stopped.settled) == ("crashed", False)
    assert journal.tick(tick.num).reason == "attempt 1 gave no sign for 120 s and was stopped"
    hung.wait(5)
    assert is_gone(tick.process)
    assert well.poll() is None
    assert kill_hung(journal, watch) == []


def test_a_night_in_which_the_machine_slept_is_held_against_nobody(journal, running, tmp_path):
    # The clock of `watch` stands still with the machine, so only its own time is given here.
    watch = Watch(tmp_path, 120.0, clock=lambda: 5.0)
    _, tick = running()
    assert kill_hung(journal, watch) == []
    os.utime(heartbeat_file(tmp_path, tick), (1.0, 1.0))
    assert kill_hung(journal, watch) == []


def test_a_run_that_never_began_to_beat_or_is_another_machines_is_left_alone(journal, tmp_path):
    tick = journal.add("s", 1.0, kind="manual", status="waiting", reason="r")
    journal.change(tick, {"status": "running", "process": "elsewhere 1 b:1", "attempt": 1})
    heartbeat_file(tmp_path, tick).parent.mkdir(parents=True)
    heartbeat_file(tmp_path, tick).touch()
    now = [0.0]
    watch = Watch(tmp_path, 1.0, clock=lambda: now[0])
    assert kill_hung(journal, watch) == []
    now[0] = 99.0
    assert kill_hung(journal, watch) == []
    heartbeat_file(tmp_path, tick).unlink()
    assert watch.hung(journal.live()) == []


def test_a_run_ends_with_the_process_that_waits_for_it(tmp_path):
    code = RUN.replace("sending_heartbeats()", "sending_heartbeats(parent=os.getppid())").replace(
        "import time", "import os, time", 1
    )
    outer = (
        "import subprocess, sys\n"
        f"inner = subprocess.Popen([sys.executable, '-c', {code!r}], stdout=subprocess.PIPE,"
        " start_new_session=True)\n"
        "inner.stdout.readline()\nprint(inner.pid, flush=True)\ninner.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE)
    pid = int(parent.stdout.readline())
    named = process_named(pid)
    assert not is_gone(named)
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 10
    while not is_gone(named):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not list(Path(tmp_path).iterdir())
