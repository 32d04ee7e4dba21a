"""A whole run through Prefect's own embedded server: what its database says afterwards."""

import json
import os
import shutil
import socket
import sqlite3
import tempfile

import pytest

from posttrain.provenance.ledger import open_ledger

QUIET = {"POSTTRAIN_TRACKING": "off"}
# Two roots that each wait until the other has begun, and a stage that is killed the first time.
FLOW = """
from PACKAGE import TASK
def declare(build):
    left = build.stage("left", TASK)
    build.stage("right", TASK)
    middle = build.stage("middle", TASK, source=left["result"])
    build.stage("last", TASK, source=middle["result"])
"""
MOODS = """
    if config.mood == "meet":
        import pathlib
        folder = pathlib.Path(config.label)
        (folder / str(config.amount)).touch()
        begun = time.monotonic()
        while len(list(folder.iterdir())) < 2:
            assert time.monotonic() < begun + 60, "nobody came"
            time.sleep(0.02)
    if config.mood == "stumble" and not (context.scratch / "once").exists():
        (context.scratch / "once").touch()
        import os
        os._exit(9)
    context.progress(1, 1)
"""


@pytest.fixture
def prefect(toy, monkeypatch):
    """Rows of Prefect's database of the toy project, whatever Prefect the user has."""
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)

    def rows(query, *values):
        database = toy.root / ".posttrain/prefect/prefect.db"
        with sqlite3.connect(database) as connection:
            return connection.execute(query, values).fetchall()

    return rows


@pytest.fixture
def meeting(toy, edit, tmp_path_factory, request):
    """Write the recipe of the flow above; each call gives the two roots a new meeting point."""
    edit(toy.root / toy.package / "stage.py", "    context.progress(1, 1)\n", MOODS.lstrip("\n"))
    flow = toy.flow.replace("chain", "meeting")
    toy.write(f"{flow.replace('.', '/')}.py", FLOW.replace("PACKAGE", toy.package))

    def recipe(middle):
        # Memory that processes share is all that two held stages have in common.
        place = tempfile.mkdtemp(dir="/dev/shm", prefix=tmp_path_factory.mktemp("place").name)
        request.addfinalizer(lambda: shutil.rmtree(place))
        toy.recipe(
            f"flow: {flow}\n"
            "run: {threads: 1, retries: 1}\n"
            f"left: {{mood: meet, amount: 1, label: {place}}}\n"
            f"right: {{mood: meet, amount: 2, label: {place}}}\n"
            f"middle: {{mood: {middle}, amount: 3}}\n"
        )

    return recipe


def tasks_of(prefect, flow_run):
    query = "SELECT name, state_type, state_name, run_count, tags FROM task_run"
    found = prefect(f"{query} WHERE flow_run_id = ?", flow_run)
    return {
        name: (kind, state, count, set(json.loads(tags)))
        for name, kind, state, count, tags in found
    }


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.timeout(600)
def test_runs_through_prefect(toy, prefect, meeting):
    meeting("stumble")
    done = toy.cli("run", "--slots", "2", env=QUIET)
    assert done.returncode == 0, done.stderr
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        (run,) = ledger.runs()
        attempts = {stage.stage: stage.attempt for stage in ledger.stage_runs(run.id)}
    # The flow run bears our id and we remember its; both say how it ended.
    flow_run = run.prefect_run_id
    assert prefect("SELECT id, name, state_type FROM flow_run") == [(flow_run, run.id, "COMPLETED")]
    assert run.status == "succeeded"
    # That left and right are done proves that they ran at the same time: each waits for the other.
    tags = {f"task:{toy.package}", "recipe:meeting"}
    assert tasks_of(prefect, flow_run) == {
        "left": ("COMPLETED", "Completed", 1, tags),
        "right": ("COMPLETED", "Completed", 1, tags),
        "middle": ("COMPLETED", "Completed", 2, tags),
        "last": ("COMPLETED", "Completed", 1, tags),
    }
    assert attempts["middle"] == 2
    states = prefect(
        "SELECT s.name FROM task_run_state s JOIN task_run t ON t.id = s.task_run_id"
        " WHERE t.name = 'middle' ORDER BY s.timestamp"
    )
    assert [name for (name,) in states] == [
        "Pending", "Running", "AwaitingRetry", "Retrying", "Completed",
    ]  # fmt: skip
    assert json.loads((toy.root / "data/last/result.json").read_text())["sum"] == 1 + 3 + 1

    again = toy.cli("run", env={**QUIET, "PYTHONPROFILEIMPORTTIME": "1"})
    assert "Everything is up to date: 4 stages, nothing to run." in again.stderr
    imported = {line.rpartition("|")[2].strip() for line in again.stderr.splitlines()}
    assert "posttrain.pipeline.execution.session" in imported
    assert not {"prefect", "posttrain.pipeline.execution.prefect"} & imported
    assert len(prefect("SELECT id FROM flow_run")) == 1

    meeting("fail")
    failed = toy.cli("run", "--slots", "2", env=QUIET)
    assert failed.returncode == 1
    assert "error: stage 'middle' failed: RuntimeError: told to fail; log: " in failed.stderr
    assert "Traceback" not in failed.stderr
    ((second, state),) = prefect("SELECT id, state_type FROM flow_run WHERE id != ?", flow_run)
    assert state == "FAILED"
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        assert [run.prefect_run_id for run in ledger.runs()] == [second, flow_run]
    ended = {name: found[:3] for name, found in tasks_of(prefect, second).items()}
    assert ended["left"] == ended["right"] == ("COMPLETED", "Completed", 1)
    # The task's own error is no reason to try again, and what depends on it never starts.
    assert ended["middle"] == ("FAILED", "Failed", 1)
    assert ended["last"] == ("PENDING", "NotReady", 0)


@pytest.mark.slow
def test_a_server_of_the_users_that_is_gone_is_said_in_one_sentence(toy, prefect):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/api"
        refused = toy.cli("run", env={**QUIET, "PREFECT_API_URL": address})
    assert refused.returncode == 2
    assert refused.stderr == (
        f"error: Prefect did not start: Failed to reach API at {address}; "
        "run with --local, or unset PREFECT_API_URL if it names a server that is gone\n"
    )
    assert not (toy.root / "data").exists()
    assert not (toy.root / "dvc.yaml").exists()
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        assert [run.status for run in ledger.runs()] == ["failed"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_where_the_temporary_server_fails_it_is_said_and_what_had_begun_is_kept(toy, prefect):
    broken = toy.root / ".posttrain/prefect/prefect.db"
    broken.parent.mkdir(parents=True)
    broken.write_text("no database at all " * 100)
    refused = toy.cli("run", env=QUIET)
    assert refused.returncode == 1
    said = "error: Prefect's temporary server ended; run the same command again, or with --local\n"
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr.partition("error: ")[2]
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        (run,) = ledger.runs()
        made = {stage.stage: stage.status for stage in ledger.stage_runs(run.id)}
    assert run.status == "failed"
    assert set(made.values()) == {"succeeded"}
    done = toy.cli("run", "--local", env=QUIET)
    assert done.returncode == 0, done.stderr
    assert not {line.partition(":")[0] for line in done.stderr.splitlines()} & {*made}
