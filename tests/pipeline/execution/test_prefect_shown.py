"""What Prefect's pages show of a run: logs of stages, the end of one that failed, artifacts."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from posttrain.pipeline.execution.log_tail import LogTail
from posttrain.pipeline.execution.prefect_shown import _Shown


def test_a_log_is_read_by_whole_lines(tmp_path):
    log = tmp_path / "sft.log"
    tail = LogTail(log)
    assert [*tail.lines()] == []
    log.write_text("one\ntw")
    assert [*tail.lines()] == ["one"]
    with log.open("a") as file:
        file.write("o\nthree\n")
    assert [*tail.lines()] == ["two", "three"]


def test_of_a_long_log_the_beginning_and_the_end_are_shown(tmp_path):
    log = tmp_path / "rl.log"
    shown = _Shown("rl", LogTail(log))
    log.write_text("".join(f"{number}\n" for number in range(1990)))
    assert len(shown.new()) == 1990
    with log.open("a") as file:
        file.write("".join(f"{number}\n" for number in range(1990, 2100)))
    # Ten more are shown at once; of the other hundred the last fifty, at the end.
    assert shown.new() == [str(number) for number in range(1990, 2000)]
    first, *last = shown.left()
    assert first == f"... 50 lines more in {log}"
    assert last == [str(number) for number in range(2050, 2100)]
    assert shown.left() == []


@pytest.fixture
def server(tmp_path):
    """Ask a real Prefect server, which the user's profile names."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mine = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    home = tmp_path / "server"
    home.mkdir()
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1",
             "--port", str(port)],
            env=mine | {"PREFECT_HOME": str(home), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"},
            stdout=log, stderr=log, cwd=tmp_path,
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}/api"

    def ask(place, **body):
        data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        asked = urllib.request.Request(url + place, data if body else None, headers)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.loads(answer.read())

    deadline = time.monotonic() + 300
    while True:
        try:
            ask("/health")
            break
        except OSError:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
    ask.url = url
    yield ask
    process.send_signal(signal.SIGTERM)
    process.wait(60)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_by_the_users_profile_is_shown_by_its_server(
    toy, server, edit, tmp_path, monkeypatch
):
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    (tmp_path / "home/.prefect").mkdir(parents=True)
    profiles = tmp_path / "home/.prefect/profiles.toml"
    profiles.write_text(f'active = "lab"\n[profiles.lab]\nPREFECT_API_URL = "{server.url}"\n')
    env = {
        "HOME": str(tmp_path / "home"),
        "POSTTRAIN_TRACKING": "off",
        "POSTTRAIN_ACTOR": "ada",
    }
    said = "    print('hello from a stage')\n"
    edit(toy.root / toy.package / "stage.py", "    # a comment\n", said)
    toy.recipe("second: {mood: fail}\n")

    done = toy.cli("run", env=env)
    assert done.returncode == 1
    assert f"note: this goes to Prefect's server at {server.url}, by profile 'lab'" in done.stderr
    (flow_run,) = server("/flow_runs/filter", limit=10)
    assert flow_run["state_type"] == "FAILED"
    # Nothing of it lies in a database of the project's.
    assert not (toy.root / ".posttrain/prefect/prefect.db").exists()

    tasks = {task["id"]: task["name"] for task in server("/task_runs/filter", limit=10)}
    logs = [
        (tasks[each["task_run_id"]], each["level"], each["message"])
        for each in server("/logs/filter", limit=200, sort="TIMESTAMP_ASC")
    ]
    assert ("first", 20, "hello from a stage") in logs
    assert ("second", 20, "hello from a stage") in logs
    (failure,) = [each for each in logs if each[1] == 40]
    assert failure[0] == "second"
    assert failure[2].startswith("stage 'second' failed: RuntimeError: told to fail; log: ")
    # What stands before the sentence is the end of the log, with its traceback.
    before = [message for name, _, message in logs if name == "second"]
    assert "RuntimeError: told to fail" in before[-2]

    found = {each["key"]: each for each in server("/artifacts/filter", limit=50)}
    assert {each["flow_run_id"] for each in found.values()} == {flow_run["id"]}
    stages = json.loads(found["chain-stages"]["data"])
    assert [(row["stage"], row["status"]) for row in stages] == [
        ("first", "succeeded"),
        ("second", "failed"),
    ]
    assert "data/first/result.json" in found["chain-run"]["data"]
    assert "\n- by: ada\n" in found["chain-run"]["data"]
    assert "chain-report" not in found

    toy.recipe("second: {mood: fine}\n")
    assert toy.cli("run", env=env).returncode == 0
    found = {each["key"]: each for each in server("/artifacts/latest/filter", limit=50)}
    assert f"({(toy.root / 'report.html').as_uri()})" in found["chain-report"]["data"]
