"""Slices of what `benchmarks/reliability` measures of signals and kills, which takes minutes."""

import signal
import sys

import pytest

from benchmarks.reliability import interrupts, schedules
from posttrain.operations.schedule.notes import Tick

RUN = [sys.executable, "-m", "posttrain", "run", "--local"]


@pytest.fixture
def project(tmp_path):
    interrupts.write(tmp_path / "p")
    return tmp_path / "p"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_modules_are_imported(project, number):
    trial = interrupts.interrupted(RUN, project, number, 0.5, group=number == signal.SIGINT)
    assert trial["wrong"] == []
    assert trial["early"] or trial["code"] == 128 + number


def test_a_run_that_keeps_no_record_and_one_that_says_nothing_are_found(project):
    says_nothing = [sys.executable, "-c", "import time; time.sleep(60)"]
    trial = interrupts.interrupted(says_nothing, project, signal.SIGTERM, 0.3)
    # It might have been ended before it could hear anything: for that, it is no mistake.
    assert (trial["early"], trial["wrong"]) == (True, [])
    speaks = [sys.executable, "-c", "import sys, time; print('odd', file=sys.stderr, flush=True);"
              " time.sleep(60)"]  # fmt: skip
    trial = interrupts.interrupted(speaks, project, signal.SIGTERM, 1.0)
    assert trial["wrong"] == ["exit code -15", "odd\n"]


def test_a_signal_that_comes_when_all_was_said_is_too_late(project):
    said = "import sys, time; print('report · done in 1 s', file=sys.stderr, flush=True)"
    command = [sys.executable, "-c", f"{said}; time.sleep(60)"]
    trial = interrupts.interrupted(command, project, signal.SIGHUP, 1.0)
    assert (trial["over"], trial["code"], trial["wrong"]) == (True, -1, [])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("local", [True, False])
def test_signals_at_random_moments(tmp_path, local):
    found = interrupts.measure(tmp_path / "p", 6, local=local, seed=1)["figures"]
    assert (found["wrong"], found["next_run"]) == ([], 0)


def test_what_is_lost_doubled_or_said_falsely_is_found():
    done = ((1.0, "crashed: attempt 1: its process is gone"), (2.0, "succeeded: all ran"))
    fine = Tick("each", 60.0, 60.0, status="succeeded", over=True, story=done)
    found = schedules.judged([fine], 0, 0.0, 119.0)
    assert (found["due"], found["lost"], found["doubled"], found["false"]) == (1, [], [], [])
    found = schedules.judged([fine], 1, 0.0, 179.0)
    assert found["lost"] == [{"due": 120, "status": None, "why": "no note"}]
    assert found["doubled"] == ["overlap"]
    twice = Tick("each", 60.0, 60.0, status="succeeded", over=True, story=(*done, done[1]))
    assert schedules.judged([twice], 0, 0.0, 119.0)["doubled"] == [60.0]
    blamed = ((1.0, "failed: the workspace is locked by process 7"),)
    wrong = Tick("each", 60.0, 60.0, status="failed", over=True, story=blamed)
    found = schedules.judged([wrong], 0, 0.0, 119.0)
    assert [each["due"] for each in found["lost"]] == [60]
    assert found["false"] == [blamed[0][1]]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_three_kills_lose_no_run(tmp_path):
    found = schedules.measure(tmp_path / "p", 3, 5, 15.0, settle=400.0, say=print)
    assert (found["at_rest"], found["lost"], found["doubled"], found["false"]) == (True, [], [], [])
