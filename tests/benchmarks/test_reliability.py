"""Slices of what `benchmarks/reliability` measures of signals: the whole of it takes minutes."""

import signal
import sys

import pytest

from benchmarks.reliability import interrupts

RUN = [sys.executable, "-m", "posttrain", "run", "--local"]


@pytest.fixture
def project(tmp_path):
    interrupts.write(tmp_path / "p")
    return tmp_path / "p"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_modules_are_imported(project, number):
    trial = interrupts.interrupted(RUN, project, number, 0.3)
    assert trial["wrong"] == []
    assert trial["code"] == 128 + number


def test_a_run_that_keeps_no_record_and_one_that_says_nothing_are_found(project):
    says_nothing = [sys.executable, "-c", "import time; time.sleep(60)"]
    trial = interrupts.interrupted(says_nothing, project, signal.SIGTERM, 0.3)
    assert trial["wrong"] == ["exit code -15", ""]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("local", [True, False])
def test_signals_at_random_moments(tmp_path, local):
    found = interrupts.measure(tmp_path / "p", 6, local=local, seed=1)["figures"]
    assert (found["wrong"], found["next_run"]) == ([], 0)
