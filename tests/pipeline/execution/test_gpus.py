"""Slots on pretended GPUs: nobody shares one, nobody waits for ever, a dead holder lets go."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from posttrain.pipeline.execution import gpus
from posttrain.pipeline.execution.supervise import StageOutcome, StageProcesses
from posttrain.pipeline.recipe import load_recipe
from posttrain.stage.errors import UserError

FLOW = """
from PACKAGE import TASK
def declare(build):
    for name in ("a", "b", "c"):
        build.stage(name, TASK)
"""
HOLDER = """
import sys, time
from posttrain.pipeline.execution.gpus import held
with held(1, give_up=lambda: False) as taken:
    print(*taken, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def pretend(tmp_path, monkeypatch):
    """A machine with these devices, and locks of its own."""
    monkeypatch.setenv(gpus.ENVIRONMENT, str(tmp_path / "locks"))
    return lambda names: monkeypatch.setenv("CUDA_VISIBLE_DEVICES", names)


@pytest.fixture
def attempts(monkeypatch):
    """Stages that only say which devices they were given, and from when until when."""
    told = []

    def attempt(_self, assignment, _limits, _watch):
        begun = time.monotonic()
        time.sleep(0.3)
        for place in assignment.outputs.values():
            place.write_text(json.dumps({"sum": 0}))
        told.append((assignment.gpus, begun, time.monotonic()))
        return StageOutcome(ok=True, rows={"result": None})

    monkeypatch.setattr(StageProcesses, "attempt", attempt)
    return told


def overlaps(one, other):
    return one[1] < other[2] and other[1] < one[2]


def run(toy, run, sections=""):
    toy.write(f"{toy.flow.replace('.', '/')}.py", FLOW.replace("PACKAGE", toy.package))
    toy.recipe(f"run: {{threads: 1, retries: 0, level: L3, {run}}}\n{sections}")
    assert {record.status for record in toy.run().values()} == {"succeeded"}


@pytest.mark.slow
@pytest.mark.parametrize(("named", "together"), [("0", 1), ("0,1", 2)])
def test_stages_that_are_ready_at_once_never_meet_on_a_device(
    toy, pretend, attempts, monkeypatch, named, together
):
    monkeypatch.setattr("posttrain.pipeline.recipe.RunSettings.lanes", lambda _: 3)
    pretend(named)
    run(toy, "device: cuda")
    assert sorted(len(taken) for taken, *_ in attempts) == [1, 1, 1]
    pairs = [(one, other) for one in attempts for other in attempts if one is not other]
    met = [(one, other) for one, other in pairs if overlaps(one, other)]
    assert all(one[0] != other[0] for one, other in met)
    assert bool(met) == (together == 2)


@pytest.mark.slow
def test_on_a_cpu_and_where_a_section_says_so_nothing_is_held(toy, pretend, attempts):
    pretend("0")
    run(toy, "device: cuda", "a: {resources: {gpus: 0}}\n")
    assert sorted(taken for taken, *_ in attempts) == [(), ("0",), ("0",)]
    attempts.clear()
    run(toy, "device: cpu")
    assert [taken for taken, *_ in attempts] == [(), (), ()]


def test_processes_want_a_device_each(toy):
    toy.recipe("run: {threads: 1, device: cuda, level: L3}")
    resources = load_recipe(toy.root).resolve(toy.root).stages["first"].resources
    assert resources.devices("cuda") == 1
    assert resources.devices("cpu") == 0
    several = resources.model_copy(update={"processes": 4})
    assert several.devices("cuda") == 4
    assert "gpus" not in several.keyed()


def test_another_project_waits_and_a_holder_that_is_killed_lets_go(pretend):
    pretend("7")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "7\n"
    waiting, got = threading.Event(), []

    def wait():
        def asked():
            waiting.set()
            return False

        with gpus.held(1, give_up=asked) as taken:
            got.append(taken)

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(5)
    time.sleep(0.5)
    assert got == []
    holder.kill()
    holder.wait()
    thread.join(5)
    assert got == [("7",)]


def test_two_of_two_are_taken_together_or_not_at_all(pretend):
    pretend("0,1")
    asked = iter([False, False, True])
    with gpus.held(1, give_up=lambda: False) as one:
        with gpus.held(2, give_up=lambda: next(asked)) as none:
            assert none == ()
        with gpus.held(1, give_up=lambda: False) as other:
            assert {*one, *other} == {"0", "1"}
    with gpus.held(2, give_up=lambda: False) as both:
        assert both == ("0", "1")
    # More than there are is not waited for: the stage itself says what is missing.
    with gpus.held(3, give_up=lambda: False) as none:
        assert none == ()


def test_the_stage_sees_its_devices_and_waits_for_who_is_still_on_them(pretend, monkeypatch):
    pretend("0,1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    over, seen = threading.Event(), []
    with gpus.used(("1",)):
        assert gpus.devices() == ("1",)

        def next_one():
            with gpus.used(("1",)):
                seen.append(over.is_set())

        thread = threading.Thread(target=next_one)
        thread.start()
        time.sleep(0.3)
        over.set()
    thread.join(5)
    assert seen == [True]


def locked_in(folder, monkeypatch, *, limit=5):
    """Take one device with its locks in `folder`; what is said, as a refusal or an error."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv(gpus.ENVIRONMENT, str(folder))
    said = []

    def take():
        try:
            with gpus.held(1, give_up=lambda: False) as taken, gpus.used(taken):
                said.append(taken)
        except UserError as error:
            said.append(str(error))

    waiting = threading.Thread(target=take, daemon=True)
    waiting.start()
    waiting.join(limit)
    assert said, "it waits for ever"
    return said[0]


def test_a_lock_that_somebody_exchanged_is_refused_and_nothing_is_followed(tmp_path, monkeypatch):
    victim = tmp_path / "nologin"

    def place(kind):
        folder = tmp_path / kind
        folder.mkdir()
        return folder

    (place("link") / "0").symlink_to(victim)
    os.mkfifo(place("pipe") / "0")
    (place("folder") / "0").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    place("open").chmod(0o777)
    for kind in ("link", "pipe", "folder", "dangling", "file", "open"):
        said = locked_in(tmp_path / kind, monkeypatch)
        assert f"{gpus.ENVIRONMENT} to a folder of your own" in said, kind
    assert not victim.exists()
    assert not (tmp_path / "nowhere").exists()
    place("shared").chmod(0o1777)
    for kind in ("shared", "new/er"):
        assert locked_in(tmp_path / kind, monkeypatch) == ("0",)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    assert "another user could exchange" in locked_in(folder, monkeypatch)
