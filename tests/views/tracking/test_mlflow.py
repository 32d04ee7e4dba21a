"""The MLflow view on real SQLite stores: what is written, by whom, and what if it fails."""

import contextlib
import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from posttrain.provenance.ledger import Run, StageRun, open_ledger
from posttrain.provenance.ledger.processes import this_process
from posttrain.provenance.ledger.records import ArtifactRecord
from posttrain.stage.errors import UserError
from posttrain.views.tracking import open_tracker, writer_process
from posttrain.views.tracking.base import Finished, MemoryTracker, Started
from posttrain.views.tracking.kinds import MlflowTracker
from posttrain.views.tracking.projection import (
    rebuild,
    run_finished,
    run_started,
    stage_finished,
    stage_started,
)

ROOT = Path(__file__).resolve().parents[3]
TABLE = ArtifactRecord("traces", "completions", "data/a/t.parquet", "ab" * 32, 10, 3, "curate")
MODEL = ArtifactRecord("policy", "checkpoint", "data/sft/policy", "cd" * 32, 99, producer="sft")

CREATE = """
import sys
from pathlib import Path
from posttrain.views.tracking.base import Finished, Started
from posttrain.views.tracking.kinds import MlflowTracker
tracker = MlflowTracker(Path(sys.argv[1]))
run = tracker.start(Started("race"))
stage = tracker.start(Started(sys.argv[2], run))
print("started", flush=True)
if sys.argv[2] == "hang":
    import time
    while tracker.external_id(stage) is None:
        time.sleep(0.05)
    print("written", flush=True)
    time.sleep(600)
tracker.finish(stage, Finished("succeeded", {"x": 1.0}))
tracker.finish(run, Finished("succeeded"))
problem = tracker.close()
sys.exit(problem)
"""


def start(*words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("MLFLOW_TRACKING_URI", None)
    return subprocess.Popen(
        [sys.executable, "-c", CREATE, *words],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


class WriterHere:
    """What the writer's process answers, without one: where a test is of what is written."""

    def __init__(self, writer: str = "posttrain.views.tracking.mlflow_writer:open_mlflow") -> None:
        self._asked: deque[Any] = deque()
        self._answers = writer_process.answers(writer, iter(self._asked.popleft, None))

    def open(self, state: Path, uri: str | None) -> None:
        self.do((state, uri, this_process()))

    def do(self, operation: Any) -> dict[str, str]:
        self._asked.append(operation)
        external, problem = next(self._answers)
        if problem is not None:
            raise writer_process.WriterFailed(problem)
        return external

    def close(self, *, seconds: float = 0.0) -> None:
        self._answers.close()


@pytest.fixture(scope="module")
def created(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with a database."""
    state, writer = tmp_path_factory.mktemp("created") / "state of things", WriterHere()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        writer.open(state, None)
    writer.close()
    return state


@pytest.fixture
def state(created: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copytree(created, tmp_path / "state")
    return tmp_path / "state"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trackers write in this process, which has mlflow already."""
    monkeypatch.setattr("posttrain.views.tracking.queued.WriterProcess", WriterHere)


def client_of(state: Path, database: str = "mlflow.db") -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{state / database}")


def writer_of(pid: int) -> psutil.Process:
    children = psutil.Process(pid).children()
    (writer,) = (each for each in children if writer_process.__name__ in each.cmdline())
    return writer


def runs_of(client: Any, experiment: str) -> dict[str, Any]:
    found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return {run.info.run_name: client.get_run(run.info.run_id) for run in found}


@pytest.mark.slow
def test_processes_that_create_one_database_do_not_harm_each_other(tmp_path: Path) -> None:
    state = tmp_path / "state of things"
    for worker in [start(str(state), name) for name in ("one", "two")]:
        _, complaint = worker.communicate(timeout=120)
        assert worker.returncode == 0, complaint
    client = client_of(state)
    runs = client.search_runs([client.get_experiment_by_name("race").experiment_id])
    assert sorted(run.info.run_name for run in runs) == ["one", "race", "race", "two"]
    assert {run.info.status for run in runs} == {"FINISHED"}


@pytest.mark.usefixtures("here")
def test_a_run_and_its_stages_are_written(state: Path) -> None:
    tracker = MlflowTracker(state)
    run = tracker.start(Started("demo", tags={"posttrain.run": "r1"}, params={"rl.steps": 40}))
    params = {"learning_rate": 1e-3, "names": ["a", "b"], "long": "x" * 9000}
    stage = tracker.start(Started("sft", run, {"k": "v"}, params, (TABLE,)))
    for step in range(1, 1201):
        tracker.metrics(stage, step, {"sft/loss": 1 / step, "pass@1": 0.5})
    tracker.metrics(stage, 1201, {"sft/loss": math.nan, "pass@1": math.inf})
    tracker.finish(stage, Finished("succeeded", {"pass@1": 0.75}, outputs=(MODEL, TABLE)))
    later = tracker.start(Started("evaluate", run, inputs=(MODEL,)))
    tracker.finish(later, Finished("failed", tags={"posttrain.error": "boom"}))
    tracker.finish(run, Finished("failed"))
    assert tracker.close() is None

    client = client_of(state)
    parent, sft, evaluate = (runs_of(client, "demo")[name] for name in ("demo", "sft", "evaluate"))
    assert tracker.external_id(stage) == sft.info.run_id
    assert sft.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert parent.data.tags["posttrain.run"] == "r1"
    assert parent.data.params == {"rl.steps": "40"}
    assert [run.info.status for run in (parent, sft, evaluate)] == ["FAILED", "FINISHED", "FAILED"]
    assert sft.data.params["learning_rate"] == "0.001"
    assert sft.data.params["names"] == "['a', 'b']"
    assert sft.data.params["long"] == "x" * 5000
    assert evaluate.data.tags["posttrain.error"] == "boom"
    losses = client.get_metric_history(sft.info.run_id, "sft/loss")
    assert [(point.step, point.value) for point in losses[:1200]] == [
        (step, 1 / step) for step in range(1, 1201)
    ]
    passed = client.get_metric_history(sft.info.run_id, "pass_1")
    assert [point.step for point in passed] == [*range(1, 1202), 1201]
    # The final figure comes after the curve's last point, and is the one that MLflow shows.
    assert sft.data.metrics["pass_1"] == passed[-1].value == 0.75

    (dataset,) = sft.inputs.dataset_inputs
    assert dataset.dataset.name == "curate.traces"
    assert dataset.dataset.digest == ("ab" * 32)[:36]
    assert {tag.key: tag.value for tag in dataset.tags}["posttrain.sha256"] == "ab" * 32
    assert {tag.key: tag.value for tag in dataset.tags}["posttrain.source"] == (
        "dvc://data/a/t.parquet"
    )
    import mlflow

    assert mlflow.data.get_source(dataset.dataset).uri == "data/a/t.parquet"
    (made,) = sft.outputs.model_outputs
    (read,) = evaluate.inputs.model_inputs
    assert made.model_id == read.model_id
    model = client.get_logged_model(made.model_id)
    assert model.tags["posttrain.source"] == "dvc://data/sft/policy"
    assert model.tags["posttrain.sha256"] == "cd" * 32
    assert model.status == "READY"
    artifacts = client.get_experiment_by_name("demo").artifact_location
    assert artifacts == (state / "mlartifacts").as_uri()
    assert not list((state / "mlartifacts").rglob("*"))


@pytest.mark.slow
def test_a_model_of_an_earlier_run_is_found_by_its_digest(state: Path) -> None:
    for name in ("sft", "evaluate"):
        tracker = MlflowTracker(state)
        run = tracker.start(Started("models"))
        inputs = (MODEL,) if name == "evaluate" else ()
        outputs = (MODEL,) if name == "sft" else ()
        stage = tracker.start(Started(name, run, inputs=inputs))
        tracker.finish(stage, Finished("succeeded", outputs=outputs))
        tracker.finish(run, Finished("succeeded"))
        assert tracker.close() is None
    found = client_of(state).search_runs(
        [client_of(state).get_experiment_by_name("models").experiment_id]
    )
    runs = [client_of(state).get_run(run.info.run_id) for run in found]
    made = [model.model_id for run in runs for model in run.outputs.model_outputs]
    read = [model.model_id for run in runs for model in run.inputs.model_inputs]
    assert len(made) == 1
    assert read == made


@pytest.mark.usefixtures("here")
def test_stages_of_several_threads_stay_apart(state: Path) -> None:
    tracker = MlflowTracker(state)
    run = tracker.start(Started("threads"))

    def work(name: str, value: float) -> None:
        stage = tracker.start(Started(name, run))
        for step in range(300):
            tracker.metrics(stage, step, {"m": value})
        tracker.finish(stage, Finished("succeeded"))

    threads = [threading.Thread(target=work, args=(f"s{index}", index)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tracker.finish(run, Finished("succeeded"))
    assert tracker.close() is None
    client = client_of(state)
    runs = runs_of(client, "threads")
    for index in range(4):
        history = client.get_metric_history(runs[f"s{index}"].info.run_id, "m")
        assert [point.value for point in history] == [index] * 300


class WriterOfNothing:
    """Answers at once, so that what is measured is the pipeline's own part."""

    def __init__(self, writer: str) -> None:
        pass

    def open(self, state: Path, uri: str | None) -> None:
        pass

    def do(self, operation: writer_process.Operation) -> dict[str, str]:
        return {}

    def close(self, *, seconds: float = 0.0) -> None:
        pass


def test_a_metric_costs_the_pipeline_next_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posttrain.views.tracking.queued.WriterProcess", WriterOfNothing)
    tracker = MlflowTracker(tmp_path)
    stage = tracker.start(Started("s", tracker.start(Started("cost"))))
    begun = time.perf_counter()
    for step in range(2000):
        tracker.metrics(stage, step, {"a": 1.0, "b": 2.0})
    assert (time.perf_counter() - begun) / 2000 < 2e-4
    assert tracker.close() is None


@pytest.mark.usefixtures("here")
def test_a_database_that_is_none_is_said_once_and_nothing_raises(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"this is no database at all, but it is long enough" * 99)
    said: list[str] = []
    tracker = MlflowTracker(tmp_path, on_problem=said.append)
    stage = tracker.start(Started("s", tracker.start(Started("r"))))
    tracker.metrics(stage, 1, {"a": 1.0})
    tracker.finish(stage, Finished("succeeded"))
    problem = tracker.close()
    assert problem is not None
    assert "MLflow tracking stopped" in problem
    assert "mlflow rebuild" in problem
    assert said == [problem]
    assert tracker.external_id(stage) is None


@pytest.mark.usefixtures("here")
def test_a_server_that_is_not_there_does_not_hold_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tracker = MlflowTracker(tmp_path)
    tracker.start(Started("s", tracker.start(Started("r"))))
    begun = time.monotonic()
    assert str(tracker.close()) == (
        "MLflow tracking stopped: the server at http://127.0.0.1:9 does not answer; start it, or"
        " correct the address; the run goes on without it; `posttrain mlflow rebuild` restores it"
        " from the ledger"
    )
    assert time.monotonic() - begun < 30
    assert not (tmp_path / "mlflow.db").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_killed_run_is_closed_by_the_next_one_and_its_writer_ends_with_it(state: Path) -> None:
    hanging = start(str(state), "hang")
    assert hanging.stdout is not None
    assert [hanging.stdout.readline() for _ in range(2)] == ["started\n", "written\n"]
    writer = writer_of(hanging.pid)
    hanging.send_signal(signal.SIGKILL)
    hanging.communicate()
    assert psutil.wait_procs([writer], timeout=20)[1] == []
    assert runs_of(client_of(state), "race")["hang"].info.status == "RUNNING"
    tracker = MlflowTracker(state)
    run = tracker.start(Started("race"))
    tracker.start(Started("alive", run))
    assert tracker.close() is None
    runs = runs_of(client_of(state), "race")
    assert runs["hang"].info.status == "KILLED"
    assert runs["alive"].info.status == "RUNNING"


@pytest.mark.slow
def test_a_writer_that_is_killed_is_said_once_and_the_run_goes_on(state: Path) -> None:
    said: list[str] = []
    tracker = MlflowTracker(state, on_problem=said.append)
    run = tracker.start(Started("orphan"))
    stage = tracker.start(Started("sft", run))
    while tracker.external_id(stage) is None:
        time.sleep(0.02)
    writer_of(os.getpid()).kill()
    tracker.metrics(stage, 1, {"sft/loss": 1.0})
    tracker.finish(stage, Finished("succeeded"))
    assert "ended with status -9" in (tracker.close() or "")
    assert len(said) == 1


def test_nothing_is_imported_where_nothing_runs(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from posttrain.views.tracking import open_tracker\n"
        "from posttrain.views.tracking.base import Finished, Started\n"
        f"tracker = open_tracker(Path({str(tmp_path / 'state')!r}))\n"
        "run = tracker.start(Started('r'))\n"
        "tracker.finish(run, Finished('succeeded'))\n"
        "assert tracker.close() is None\n"
        "sys.exit(int(bool({'mlflow', 'sqlalchemy'} & set(sys.modules))))"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT).returncode == 0
    assert not (tmp_path / "state").exists()


def test_what_was_prepared_in_vain_writes_nothing_and_leaves_nobody(tmp_path: Path) -> None:
    tracker = open_tracker(tmp_path / "state")
    tracker.prepare()
    while not (writers := [each for each in psutil.Process().children() if _writes(each)]):
        time.sleep(0.02)
    run = tracker.start(Started("r"))
    tracker.finish(run, Finished("failed"))
    began = time.monotonic()
    assert tracker.close() is None
    assert time.monotonic() - began < 5
    assert psutil.wait_procs(writers, timeout=60)[1] == []
    assert not (tmp_path / "state").exists()


def _writes(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return writer_process.__name__ in process.cmdline()
    return False


def test_tracking_can_be_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTTRAIN_TRACKING", "off")
    assert isinstance(open_tracker(tmp_path), MemoryTracker)
    monkeypatch.delenv("POSTTRAIN_TRACKING")
    assert isinstance(open_tracker(tmp_path), MlflowTracker)


def told(client: Any, experiment: str) -> dict[str, Any]:
    """What the view says of every run, without the ids and the process of who wrote it."""
    return {
        name: (
            run.info.status,
            run.info.start_time,
            run.info.end_time,
            run.data.params,
            run.data.metrics,
            {
                k: v
                for k, v in run.data.tags.items()
                if k.startswith("posttrain.") and "process" not in k
            },
            [
                (each.dataset.name, each.dataset.digest, each.dataset.source_type)
                for each in run.inputs.dataset_inputs
            ],
            [client.get_logged_model(m.model_id).tags for m in run.inputs.model_inputs],
            [client.get_logged_model(m.model_id).tags for m in run.outputs.model_outputs],
        )
        for name, run in runs_of(client, experiment).items()
    }


@pytest.mark.slow
@pytest.mark.core
def test_a_rebuilt_view_says_what_the_live_one_said(state: Path, tmp_path: Path) -> None:
    run = Run(
        "r1", "both", 1000.0, "posttrain run", 1100.0, "failed", overrides={"sft.epochs": "2"}
    )
    params = {"params": {"epochs": "2.0", "optimizer": '"muon"'}}
    stage = StageRun("s1", "r1", "sft", "tasks.sft", "k1", "succeeded", 1001.0, 1042.5)
    sft = replace(
        stage,
        components=params,
        inputs=(TABLE,),
        outputs=(MODEL,),
        metrics={"sft/loss": 0.25},
        timings={"execute": 41.0},
    )
    judge = replace(
        stage, id="s2", stage="evaluate", status="failed", inputs=(MODEL,), error="no memory"
    )
    live = MlflowTracker(state)
    parent = live.start(run_started(run))
    for record in (sft, judge):
        handle = live.start(stage_started(record, parent))
        live.finish(handle, stage_finished(record))
    live.finish(parent, run_finished(run, [sft, judge]))
    assert live.close() is None
    before = told(client_of(state), "both")

    with open_ledger(tmp_path / "ledger.db") as ledger:
        ledger.append_run(run, process="elsewhere 1 x")
        ledger.record(sft, judge)
        assert rebuild(ledger, state, uri=f"sqlite:///{state / 'again.db'}") == 2
        assert rebuild(ledger, state) == 2
    again = client_of(state, "again.db")
    assert told(again, "both") == before
    assert before["sft"][3] == {"epochs": "2.0", "optimizer": "muon"}
    # A view of 0.1 has a type of source that MLflow does not know any more.
    assert [source for *_, source in before["sft"][6]] == ["local"]
    assert len(before["evaluate"][7]) == 1
    with sqlite3.connect(state / "mlflow.db") as database:
        names = {name for (name,) in database.execute("SELECT name FROM experiments")}
    # The other experiments of the copied database were not in the ledger.
    assert names == {"Default", "both"}


@pytest.mark.usefixtures("here")
def test_a_rebuild_that_fails_leaves_the_old_view(state: Path, tmp_path: Path) -> None:
    before = (state / "mlflow.db").read_bytes()
    with open_ledger(tmp_path / "ledger.db") as ledger:
        ledger.append_run(Run("r1", "x", 1.0, ended=2.0, status="succeeded"), process="e 1 x")
        ledger.record(StageRun("s1", "r1", "sft", "tasks.sft", "k", "succeeded", 1.0, 2.0))
        with pytest.raises(UserError, match="was not rebuilt: MLflow tracking stopped") as refused:
            rebuild(ledger, state, uri="sqlite:////dev/null/mlflow.db")
        assert "the run goes on" not in str(refused.value)
    assert (state / "mlflow.db").read_bytes() == before


@pytest.mark.usefixtures("here")
def test_times_of_a_replay_are_those_of_the_record(state: Path) -> None:
    tracker = MlflowTracker(state)
    run = tracker.start(Started("replayed", at=1000.5))
    stage = tracker.start(Started("s", run, at=1001.0))
    tracker.finish(stage, Finished("succeeded", at=1002.25))
    assert tracker.close() is None
    info = runs_of(client_of(state), "replayed")["s"].info
    assert (info.start_time, info.end_time) == (1_001_000, 1_002_250)
