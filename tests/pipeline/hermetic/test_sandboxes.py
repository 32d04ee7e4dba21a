"""Stages that run programs in the sandbox: through a broker, as they may start none themselves."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

RUN = """
from posttrain.backends.sandbox.door import run_programs
from posttrain.backends.sandbox.program import Program
programs = [Program.of("python", f"print({i} * {i})") for i in range(4)]
ends = run_programs(programs)
assert [end.output for end in ends] == ["0\\n", "1\\n", "4\\n", "9\\n"], ends
"""


pytestmark = pytest.mark.usefixtures("sandboxed")


@pytest.fixture
def asking(doing, edit):
    """Let the toy's stages say that they need the sandbox, and do something."""

    def change(body, recipe=""):
        toy = doing(body, recipe)
        config = toy.root / toy.package / "config.py"
        said = '    def reaches(self):\n        return frozenset({"sandbox"})\n'
        config.write_text(config.read_text() + said)
        return toy

    return change


def of(toy):
    """Brokers and sandboxes of this project: the processes below its root, by their variables."""
    mark = str(toy.root).encode()
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (each / "cmdline").read_bytes()
            if b"sandbox.broker" in command and mark in (each / "environ").read_bytes():
                found.append(int(each.name))
    return found


def below(pid):
    """Numbers of all processes that a process has begun, and they in turn."""
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def until(true, seconds=100):
    """Wait until something is so; returns what it said last."""
    end = time.monotonic() + seconds
    while not (said := true()) and time.monotonic() < end:
        time.sleep(0.05)
    return said


def gone(pids):
    """Return whether no such process is alive."""
    return not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.slow
def test_a_held_stage_runs_programs_and_its_record_says_by_which_versions(asking, isolation):
    toy = asking(RUN)
    records = toy.run()
    told = records["first"].circumstances
    assert told["isolation"].startswith(isolation)
    assert re.match(r"bubblewrap [\d.]+, Python 3[\d.]+", told["sandbox"])
    assert of(toy) == []


def test_a_stage_that_does_not_say_that_it_needs_it_is_refused(doing):
    toy = doing(RUN)
    done = toy.cli("run", "--local", "--only", "first")
    assert done.returncode == 2
    assert "this stage runs programs in the sandbox, and nothing in its" in " ".join(
        done.stderr.split()
    )


SLEEPING = """
import os
from posttrain.backends.sandbox.door import run_programs
from posttrain.backends.sandbox.program import Program, ProgramLimits
if config.label != "again" or not (context.scratch / "tried").exists():
    (context.scratch / "tried").write_text(str(os.getpid()))
    # Longer than a busy machine takes to start both: every test ends them, or what they are of.
    limits = ProgramLimits(seconds=300.0, cpu_seconds=300.0)
    sleeper = Program.of("shell", "sleep 200; echo late", limits=limits)
    try:
        run_programs([sleeper, sleeper])
    except ConnectionError as error:
        raise RuntimeError(str(error)) from None
"""


def started(toy, *words):
    """Begin a run whose first stage runs programs that sleep; returns it and what it has begun."""
    run = subprocess.Popen(
        [sys.executable, "-m", "posttrain", "run", "--local", "--only", "first", *words],
        cwd=toy.root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Each sandbox is bubblewrap, the keeper, the shell and what it has started.
    assert until(lambda: of(toy) and len(below(of(toy)[0])) >= 8)
    return run, [of(toy)[0], *below(of(toy)[0])]


# Each is a whole run from the command line, of three seconds on an idle machine.
@pytest.mark.slow
def test_a_run_that_is_killed_leaves_no_sandbox(asking):
    run, pids = started(asking(SLEEPING))
    run.kill()
    run.wait()
    assert until(lambda: gone(pids))


@pytest.mark.slow  # as above
def test_a_run_that_is_interrupted_leaves_no_sandbox(asking):
    run, pids = started(asking(SLEEPING))
    run.send_signal(signal.SIGTERM)
    assert run.wait() == 128 + signal.SIGTERM
    assert until(lambda: gone(pids))


@pytest.mark.slow  # as above
def test_a_stage_whose_broker_was_killed_says_so(asking):
    run, pids = started(asking(SLEEPING))
    os.kill(pids[0], signal.SIGKILL)
    _, said = run.communicate()
    assert run.returncode == 1
    assert "the process that runs the stage's sandboxes is gone" in " ".join(said.split())
    assert until(lambda: gone(pids))


@pytest.mark.slow  # as above
def test_a_stage_that_was_killed_is_tried_again_with_a_broker_of_its_own(asking):
    toy = asking(SLEEPING + RUN, "run: {threads: 1, retries: 1}\nfirst: {label: again}\n")
    run, pids = started(toy)
    (noted,) = toy.root.rglob("tried")
    os.kill(int(noted.read_text()), signal.SIGKILL)
    _, said = run.communicate()
    assert run.returncode == 0, said
    assert until(lambda: gone(pids))


@pytest.mark.slow  # two processes that import torch
def test_every_process_of_a_stage_has_the_door(asking):
    toy = asking(
        RUN,
        "run: {threads: 2, retries: 0}\nfirst: {resources: {processes: 2}}\n",
    )
    declared = toy.root / toy.package / "__init__.py"
    declared.write_text(declared.read_text().replace('"the sum")})', '"the sum")}, parallel=True)'))
    done = toy.cli("run", "--local", "--only", "first")
    assert done.returncode == 0, done.stderr
