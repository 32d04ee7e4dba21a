"""Signals that ask a command to end, in the moments in which nothing of a run has begun."""

import os
import signal
import subprocess
import sys
import time

import pytest

from posttrain.stage import interrupts
from posttrain.stage.interrupts import SENTENCE, Interrupted, hear

WAITS = """
import signal, time
from posttrain.stage.interrupts import Interrupted, hear, interrupt, end_now, let_end
hear({handler})
try:
    print("ready", flush=True)
    time.sleep(60)
except Interrupted as error:
    print("heard", error.number, flush=True)
"""


def begin(handler, *, code=WAITS, **options):
    code = code.format(handler=handler)
    process = subprocess.Popen([sys.executable, "-c", code], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, **options)  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_where_nothing_is_begun_it_ends_with_the_sentence(number):
    process = begin("end_now")
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (128 + number, SENTENCE + "\n")


def test_a_signal_is_an_exception_with_its_number():
    process = begin("interrupt")
    process.send_signal(signal.SIGTERM)
    heard, said = process.communicate(timeout=20)
    assert (process.returncode, heard, said) == (0, "heard 15\n", "")


@pytest.mark.slow
def test_a_command_that_is_done_ends_as_the_success_that_it_is():
    """By itself, or after a while: the second of these never comes to its end."""
    done = begin("let_end", code=WAITS.replace("60)", "0.5)"))
    done.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert (*done.communicate(timeout=20), done.returncode) == ("", "", 0)
    assert time.monotonic() - began < interrupts.PATIENCE_SECONDS
    stuck = begin("let_end")
    stuck.send_signal(signal.SIGHUP)
    assert (*stuck.communicate(timeout=20), stuck.returncode) == ("", "", 0)


def test_what_never_returns_is_ended_all_the_same(monkeypatch):
    ended = []
    monkeypatch.setattr(interrupts, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(interrupts, "end_now", ended.append)
    with pytest.raises(Interrupted) as raised:
        interrupts.interrupt(signal.SIGHUP)
    assert raised.value.number == signal.SIGHUP
    deadline = time.monotonic() + 10
    while not ended and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ended == [signal.SIGHUP]


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    others = {number: signal.getsignal(number) for number in interrupts.SIGNALS}
    try:
        former = hear(lambda *_: None)
        assert signal.SIGHUP not in former
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        os.kill(os.getpid(), signal.SIGHUP)
    finally:
        for number, handler in others.items():
            signal.signal(number, handler)
        signal.signal(signal.SIGHUP, before)
