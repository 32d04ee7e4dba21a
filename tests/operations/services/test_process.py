"""Processes that are remembered by file and ended for certain."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from posttrain.operations.services import process
from posttrain.operations.services.plan import ServicePlan, addresses
from posttrain.operations.services.process import Service
from posttrain.operations.services.supervisor import Supervisor, healthy, take_down
from posttrain.stage.errors import UserError

# A service with a child of its own, which both ignore the polite request to end.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
print(child.pid, flush=True)
time.sleep(600)
"""


def service(code, name="s", **fields):
    given = {"environment": {"GIVEN": "yes"}, "health": "", **fields}
    return Service(name, (sys.executable, "-c", code), **given)


def wait(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def exists(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_service_ends_with_everything_that_it_started(tmp_path):
    process.start(service(STUBBORN), tmp_path, tmp_path)
    log = tmp_path / "s.log"
    wait(lambda: log.read_text().endswith("\n"))
    child, pid = int(log.read_text()), process.alive(tmp_path, "s")
    assert exists(child)
    assert process.end(tmp_path, "s", grace=0.2)
    wait(lambda: not exists(child) and not exists(pid))
    assert process.alive(tmp_path, "s") is None
    assert not (tmp_path / "s.pid").exists()
    assert not process.end(tmp_path, "s", grace=0.2)


def test_a_number_that_another_process_got_is_left_alone(tmp_path):
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process.remember(tmp_path, "s", stranger.pid)
    assert process.alive(tmp_path, "s") == stranger.pid
    text = (tmp_path / "s.pid").read_text()
    host, pid, birth = text.split(" ")
    boot, tick = birth.split(":")
    # The same number, begun at another time, and in another boot.
    for other in (f"{boot}:{int(tick) - 1}", f"gone:{tick}"):
        (tmp_path / "s.pid").write_text(f"{host} {pid} {other}")
        assert not process.end(tmp_path, "s", grace=0.2)
        assert stranger.poll() is None
    stranger.communicate()


def test_a_supervisor_that_is_killed_leaves_nobody_behind(tmp_path):
    code = (
        "from pathlib import Path; import sys, time\n"
        "from posttrain.operations.services import process\n"
        "from posttrain.operations.services.process import Service\n"
        "command = (sys.executable, '-c', 'import time; time.sleep(600)')\n"
        f"process.start(Service('s', command, {{}}, ''), Path({str(tmp_path)!r}), Path('.'))\n"
        "print('up', flush=True)\ntime.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout.readline() == b"up\n"
    assert process.alive(tmp_path, "s") is not None
    parent.kill()
    parent.wait()
    wait(lambda: process.alive(tmp_path, "s") is None)


def test_a_service_that_is_not_well_is_seen(tmp_path):
    beat = tmp_path / "beat"
    watched = service("", health=str(beat))
    assert not healthy(watched, since=0)
    beat.touch()
    assert healthy(watched, since=time.time() - 5)
    # The beat of the one before does not count.
    assert not healthy(watched, since=time.time() + 5)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    assert not healthy(service("", health=f"http://127.0.0.1:{port}/health"), since=0)


class Fake(ServicePlan):
    """A plan of small services instead of the servers."""

    def services(self):
        beats = (
            "import time, pathlib\n"
            "while True:\n    pathlib.Path('PLACE').touch()\n    time.sleep(.05)"
        )
        made = []
        for name in ("prefect", "mlflow", "worker"):
            place = self.folder / f"{name}.beat"
            made.append(service(beats.replace("PLACE", str(place)), name, health=str(place)))
        return made


def test_what_ends_is_started_again_and_all_ends_at_the_end(tmp_path):
    said = []
    supervisor = Supervisor(Fake(tmp_path, 1, 2), said.append)
    thread = threading.Thread(target=supervisor.run)
    plan = Fake(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServicePlan, "require_free_ports", lambda _: None)
        thread.start()
        wait(lambda: "up: all services answer" in said)
    first = process.alive(plan.folder, "mlflow")
    os.kill(first, signal.SIGKILL)
    wait(lambda: process.alive(plan.folder, "mlflow") not in (None, first))
    assert f"mlflow: ended with exit code {-signal.SIGKILL}; again in 0.5 s" in said
    assert addresses(tmp_path)["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:2"
    with pytest.raises(UserError, match="the services are up already"):
        Supervisor(plan, said.append).run()
    supervisor.stop()
    thread.join(20)
    assert [process.alive(plan.folder, name) for name in ("prefect", "mlflow", "worker")] == [
        None
    ] * 3
    assert take_down(tmp_path) == []


def test_a_taken_port_is_said_before_anything_starts(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        plan = ServicePlan(tmp_path, prefect_port=port)
        with pytest.raises(UserError, match=f"port {port} on .* is in use; .* --prefect-port"):
            Supervisor(plan, print).run()
    assert process.alive(plan.folder, "supervisor") is None
    assert not (plan.folder / "prefect.log").exists()
