"""Processes that are remembered by file and ended for certain."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from posttrain.cli import up as verbs
from posttrain.operations.services import process
from posttrain.operations.services import supervisor as supervisors
from posttrain.operations.services.plan import FOLDER, ServicePlan, addresses
from posttrain.operations.services.process import Service
from posttrain.operations.services.supervisor import Supervisor, _sign, _Watched, take_down
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
    health = _Watched(service("", health=str(beat)))
    assert not health.answers()
    beat.touch()
    assert health.answers()
    # Neither the sign of before counts, nor what the clock says of it.
    assert not health.answers()
    os.utime(beat, (1, 1))
    assert health.answers()
    assert not _Watched(service("", health=str(beat)), touched=_sign(str(beat))).answers()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    assert not _Watched(service("", health=f"http://127.0.0.1:{port}/health")).answers()


def test_a_process_of_another_machine_is_never_signalled(tmp_path):
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    for name in ("supervisor", "worker"):
        (folder / f"{name}.pid").write_text(f"oldhost {stranger.pid} otherboot:1")
        assert process.alive(folder, name) is None
        assert process.elsewhere(folder, name) == f"oldhost (process {stranger.pid})"
    assert take_down(tmp_path) == []
    assert stranger.poll() is None
    # It may live there: its file stays.
    assert (folder / "worker.pid").exists()
    # A host that was renamed while it runs still has its own processes.
    process.remember(folder, "worker", stranger.pid)
    _, *rest = (folder / "worker.pid").read_text().split(" ")
    (folder / "worker.pid").write_text(" ".join(["oldname", *rest]))
    assert process.elsewhere(folder, "worker") is None
    assert process.alive(folder, "worker") == stranger.pid
    stranger.communicate()


BEATS = """
import os, time, pathlib
for n in range(TIMES):
    pathlib.Path('PLACE').touch()
    os.utime('PLACE', ns=(n, n + time.time_ns()))
    time.sleep(.02)
time.sleep(600)
"""


class Fake(ServicePlan):
    """A plan of small services instead of the servers; mlflow stops beating in one that `hangs`."""

    hangs = False
    breaks = ""

    def services(self):
        made = []
        for name in ("prefect", "mlflow", "worker"):
            place = self.folder / f"{name}.beat"
            times = 20 if self.hangs and name == "mlflow" else 10**9
            code = BEATS.replace("PLACE", str(place)).replace("TIMES", str(times))
            code = "raise RuntimeError('no luck today')" if self.breaks == name else code
            after = "prefect" if name == "worker" else None
            made.append(service(code, name, health=str(place), after=after, hung_seconds=1.0))
        return made

    def require_free_ports(self):
        pass


@pytest.fixture
def supervise(tmp_path):
    """Runs a plan in a thread; returns what it says and how to end it."""
    running = []

    def begin(plan):
        said = []
        running.append((Supervisor(plan, said.append), said))
        thread = threading.Thread(target=running[-1][0].run)
        running[-1] += (thread,)
        thread.start()
        return said

    yield begin
    for supervisor, _, thread in running:
        supervisor.stop()
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.slow
def test_what_ends_is_started_again_and_all_ends_at_the_end(tmp_path, supervise):
    plan = Fake(tmp_path, 1, 2)
    said = supervise(plan)
    wait(lambda: "up: all services answer" in said)
    first = process.alive(plan.folder, "mlflow")
    os.kill(first, signal.SIGKILL)
    wait(lambda: process.alive(plan.folder, "mlflow") not in (None, first))
    (again,) = [line for line in said if "mlflow: ended" in line]
    assert again.startswith(f"mlflow: ended with exit code {-signal.SIGKILL}; it is started again")
    assert again.endswith(f"log: {plan.folder}/mlflow.log")
    assert addresses(tmp_path)["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:2"
    with pytest.raises(UserError, match=r"the services are up already \(process \d+\)"):
        Supervisor(plan, said.append).run()
    # Neither is a second one let in whose host has another name, nor one without a file.
    _, *rest = (plan.folder / "supervisor.pid").read_text().split(" ")
    (plan.folder / "supervisor.pid").write_text("elsewhere 17 otherboot:1")
    with pytest.raises(UserError, match=r"up already on elsewhere \(process 17\)"):
        Supervisor(plan, said.append).run()
    process.remember(plan.folder, "supervisor", os.getpid())


@pytest.mark.slow
def test_all_are_down_after_a_stop(tmp_path):
    plan, said = Fake(tmp_path, 1, 2), []
    supervisor = Supervisor(plan, said.append)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    wait(lambda: "up: all services answer" in said)
    supervisor.stop()
    thread.join(20)
    names = ("prefect", "mlflow", "worker", "supervisor")
    assert [process.alive(plan.folder, name) for name in names] == [None] * 4
    assert take_down(tmp_path) == []


@pytest.mark.slow
def test_a_service_that_hangs_is_started_again(tmp_path, supervise, monkeypatch):
    monkeypatch.setattr(supervisors, "_ASK_SECONDS", 0.1)
    plan = Fake(tmp_path)
    object.__setattr__(plan, "hangs", True)
    said = supervise(plan)
    wait(lambda: any("mlflow: did not answer for 1 s" in line for line in said))
    wait(lambda: sum("mlflow: up" in line for line in said) > 1)
    assert not [line for line in said if line.startswith(("prefect: did", "worker: did"))]


@pytest.mark.slow
def test_one_that_cannot_start_takes_nobody_down(tmp_path, supervise):
    plan = Fake(tmp_path)
    object.__setattr__(plan, "breaks", "mlflow")
    said = supervise(plan)
    wait(lambda: any("up without" in line for line in said))
    (last,) = [line for line in said if "up without" in line]
    assert last.startswith("up without mlflow: ended with exit code 1 (RuntimeError: no luck today")
    assert f"log: {plan.folder}/mlflow.log" in last
    assert None not in (process.alive(plan.folder, n) for n in ("prefect", "worker"))
    # What stays the same is said once.
    wait(lambda: (plan.folder / "mlflow.log").read_text().count("no luck today") >= 2)
    assert sum(line.startswith("mlflow:") for line in said) == 1


@pytest.mark.slow
def test_a_full_disk_ends_no_watch(tmp_path, monkeypatch):
    plan, said = Fake(tmp_path, 1, 2), []
    remember, full = process.remember, iter([True])

    def remembered(folder, name, pid):
        if name == "mlflow" and next(full, False):
            raise OSError(28, "No space left on device")
        remember(folder, name, pid)

    def say(line):
        said.append(line)
        if line.startswith("mlflow: "):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(process, "remember", remembered)
    running = Supervisor(plan, say)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        wait(lambda: any(line.startswith("mlflow: up") for line in said))
        told = "mlflow: cannot be started: No space left on device; it is started again"
        assert any(line.startswith(told) for line in said)
        os.kill(process.alive(plan.folder, "mlflow"), signal.SIGKILL)
        wait(lambda: sum(line.startswith("mlflow: up") for line in said) == 2)
    finally:
        running.stop()
        thread.join(20)


def test_a_worker_waits_for_a_server_that_does_not_come_up(tmp_path, supervise):
    plan = Fake(tmp_path)
    object.__setattr__(plan, "breaks", "prefect")
    said = supervise(plan)
    wait(lambda: any("up without" in line for line in said))
    assert "worker: waits for prefect" in said
    assert not (plan.folder / "worker.log").exists()


def test_a_database_that_cannot_be_opened_is_named(tmp_path):
    broken = tmp_path / "mlflow.db"
    broken.write_bytes(b"garbage")
    sentence = supervisors._damage(service("", database=broken))
    assert sentence == f"its database {broken} cannot be used (file is not a database)"
    assert supervisors._damage(service("", database=tmp_path / "none.db")) is None
    with sqlite3.connect(tmp_path / "held.db") as held:
        held.execute("CREATE TABLE t (a)")
        held.commit()
        assert supervisors._damage(service("", database=tmp_path / "held.db")) is None
        held.execute("BEGIN EXCLUSIVE")
        supervisors_patience = pytest.MonkeyPatch()
        supervisors_patience.setattr(supervisors, "_ANSWER_SECONDS", 0.1)
        locked = supervisors._damage(service("", database=tmp_path / "held.db"))
        supervisors_patience.undo()
    assert locked.endswith("cannot be used (database is locked)")


def test_a_folder_or_disk_that_takes_nothing_is_said(tmp_path, monkeypatch):
    blocked = tmp_path / ".posttrain"
    blocked.write_text("a file")
    with pytest.raises(UserError, match=r"cannot write in .*services: Not a directory"):
        Supervisor(Fake(tmp_path), print).run()
    blocked.unlink()
    monkeypatch.setattr(supervisors.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    with pytest.raises(UserError, match=r"no space left on the disk of .* \(1 MB\).* 64 MB"):
        Supervisor(Fake(tmp_path), print).run()


def test_no_password_is_in_any_arguments(tmp_path, monkeypatch):
    urls = [f"postgresql://me:SECRET{n}@db/x" for n in range(2)]
    plan = ServicePlan(tmp_path, database=urls[0], mlflow_database=urls[1])
    assert "SECRET" not in str([each.command for each in plan.services()])
    prefect, mlflow, worker = (each.environment for each in plan.services())
    assert "SECRET0" in prefect["PREFECT_API_DATABASE_CONNECTION_URL"]
    assert "SECRET1" in mlflow["MLFLOW_BACKEND_STORE_URI"]
    # Runs of schedules have no business with them.
    assert worker["POSTTRAIN_PREFECT_DATABASE"] == worker["MLFLOW_BACKEND_STORE_URI"] == ""

    class Handed(Exception):
        pass

    def hand_on(command, *given, env=None, **_):
        raise Handed(command, env or given[-1])

    (tmp_path / ".dvc").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verbs.subprocess, "Popen", hand_on)
    monkeypatch.setattr(verbs.os, "execve", lambda _, *given: hand_on(*given))
    options = ["--database", urls[0], "--mlflow-database", urls[1]]
    for detach in ([], ["--detach"]):
        with pytest.raises(Handed) as handed:
            verbs.up.main([*options, *detach], standalone_mode=False)
        command, environment = handed.value.args
        assert "SECRET" not in str(command)
        assert environment["POSTTRAIN_PREFECT_DATABASE"] == urls[0]
        assert environment["MLFLOW_BACKEND_STORE_URI"] == urls[1]


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
