"""How a run is asked to end: what works ends, what waits is left, and who asked is said."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from posttrain.pipeline.execution.interruption import Interruption
from posttrain.stage.interrupts import SENTENCE, Interrupted


def test_work_is_carried_out_and_its_error_is_raised_here():
    done, told = Interruption(), []
    done.carry_out(lambda: told.append(threading.current_thread()))
    assert told[0] is not threading.current_thread()

    def fail():
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        done.carry_out(fail)


def test_work_that_nobody_has_to_end_is_left_at_once():
    asked, never = Interruption(), threading.Event()

    def work():
        with asked.abortable():
            never.wait(60)

    threading.Timer(0.2, asked.request, [signal.SIGTERM]).start()
    began = time.monotonic()
    with pytest.raises(Interrupted, match="SIGTERM") as raised:
        asked.carry_out(work)
    never.set()
    assert raised.value.number == signal.SIGTERM
    assert 0.2 <= time.monotonic() - began < 0.7


def test_work_has_a_moment_to_end_and_a_stage_that_saves_the_grace():
    for saving, least, most in ((False, 0.4, 1.2), (True, 1.0, 2.0)):
        asked, never = Interruption(), threading.Event()
        asked.request(signal.SIGHUP, grace=0.6)
        began = time.monotonic()

        def work(asked=asked, never=never, saving=saving):
            if saving:
                with asked.saving():
                    never.wait(60)
            never.wait(60)

        with pytest.raises(Interrupted):
            asked.carry_out(work)
        never.set()
        assert least <= time.monotonic() - began < most


def test_the_first_request_counts():
    asked = Interruption()
    assert not asked.requested
    asked.request(signal.SIGTERM, grace=5.0)
    asked.request(signal.SIGINT, grace=0.0)
    assert asked.error().number == signal.SIGTERM
    assert 4.0 < asked.grace_left() <= 5.0


def test_a_process_that_ended_a_moment_before_was_ended_by_the_same_signal():
    asked = Interruption()
    assert not asked.explains_failure()
    threading.Timer(0.05, asked.request).start()
    assert asked.explains_failure()


HEARS = """
import os, signal, sys, time
from posttrain.pipeline.execution.interruption import Interruption
from posttrain.stage.interrupts import Interrupted
asked = Interruption()
def stubborn():
    print("ready", flush=True)
    time.sleep(60)
try:
    with asked.heard(notice={notice}):
        if {by_main}:
            stubborn()
        asked.carry_out(stubborn)
except Interrupted as error:
    print(error, flush=True)
    os._exit(0)
"""


def begin(*, by_main, notice=0.0):
    code = HEARS.format(by_main=by_main, notice=notice)
    process = subprocess.Popen([sys.executable, "-c", code], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_heard_while_the_work_goes_on_in_its_thread(number):
    process = begin(by_main=False)
    process.send_signal(number)
    assert process.communicate(timeout=20)[0] == f"{signal.Signals(number).name}\n"


@pytest.mark.slow
def test_what_holds_the_main_thread_is_ended_all_the_same():
    process = begin(by_main=True)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (143, SENTENCE + "\n")
    # The grace of 1.5 s, and 0.9 s to close the records.
    assert 2.4 <= time.monotonic() - began < 4


def test_a_second_signal_ends_at_once_but_for_one_that_a_wrapper_handed_on():
    process = begin(by_main=True, notice=30.0)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.6)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(5) == 130
    process.communicate()
