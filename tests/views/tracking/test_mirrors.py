"""TensorBoard and W&B beside MLflow: real files of both, and what is noted for resuming."""

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from posttrain.stage.errors import UserError
from posttrain.views.tracking import open_tracker
from posttrain.views.tracking.base import Finished, MemoryTracker, Started, Status
from posttrain.views.tracking.kinds import (
    MlflowTracker,
    OpenLineageTracker,
    SeveralTrackers,
    TensorboardTracker,
    WandbTracker,
)
from posttrain.views.tracking.mirrors import CurveMirror, MirroredStage, MirrorWriter
from posttrain.views.tracking.queued import QueuedTracker

ROOT = Path(__file__).resolve().parents[3]
KILLED = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from posttrain.views.tracking.base import Started
from posttrain.views.tracking.kinds import {tracker}
tracker = {tracker}(Path(sys.argv[1]))
run = tracker.start(Started("demo", tags={{"posttrain.run": "r1"}}))
stage = tracker.start(Started("rl", run, tags={{"posttrain.key": "k" * 64}}))
for step in range(1, 4):
    tracker.metrics(stage, step, {{"rl/x": 10.0 * step}})
note = Path(sys.argv[1], "mirrors", sys.argv[2], "rl-" + "k" * 16 + ".json")
end = time.monotonic() + 120
while not (note.is_file() and '"told": 3' in note.read_text()):
    if time.monotonic() > end:
        sys.exit("the steps were never noted: " + str(tracker.close()))
    time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_a_run_after_step_3(state: Path, tracker: str, name: str) -> None:
    """Let a run tell steps 1 to 3, wait until they are noted, and kill it."""
    script = KILLED.format(root=str(ROOT), tracker=tracker)
    done = subprocess.run([sys.executable, "-c", script, str(state), name], check=False)
    assert done.returncode == -signal.SIGKILL


def go_on(tracker: QueuedTracker) -> None:
    """The next attempt tells the curve from its first step, as a checkpoint has all of it."""
    run = tracker.start(Started("demo", tags={"posttrain.run": "r2"}))
    tags = {"posttrain.key": "k" * 64}
    stage = tracker.start(Started("rl", run, tags=tags, params={"steps": 5}, resumes="an id"))
    for step in range(1, 6):
        tracker.metrics(stage, step, {"rl/x": 10.0 * step})
    tracker.finish(stage, Finished("succeeded", {"rl/x": 50.0}))
    tracker.finish(run, Finished("succeeded"))
    assert tracker.close() is None


@pytest.mark.slow
def test_tensorboard_has_every_step_once_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.delenv("POSTTRAIN_TENSORBOARD", raising=False)
    kill_a_run_after_step_3(tmp_path, "TensorboardTracker", "tensorboard")
    go_on(TensorboardTracker(tmp_path))
    (folder,) = {path.parent for path in (tmp_path / "tensorboard").rglob("events.*")}
    # It goes on in the folder of the run that was killed.
    assert folder == tmp_path / "tensorboard" / "demo" / "r1" / "rl"
    read = EventAccumulator(str(folder)).Reload()
    curve = [(point.step, point.value) for point in read.Scalars("rl/x")]
    assert curve == [(step, 10.0 * step) for step in range(1, 6)]
    assert [point.value for point in read.Scalars("final/rl/x")] == [50.0]
    assert not [*(tmp_path / "mirrors" / "tensorboard").glob("*.json")]


def records_in(file: Path) -> Iterator[bytes]:
    """Records of a log as LevelDB writes it, which W&B's are: blocks of 32 KiB with fragments."""
    data, place, whole = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:  # the rest of a block is padding
            place += left
            continue
        length, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last fragment of one
            yield whole
            whole = b""


def told_to_wandb(file: Path) -> dict[str, Any]:
    """Steps and values of one offline run, with its identity, by W&B's own messages."""
    from wandb.proto import wandb_internal_pb2

    told: dict[str, Any] = {"history": [], "summary": {}}
    for data in records_in(file):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        match record.WhichOneof("record_type"):
            case "run":
                told |= {"id": record.run.run_id, "group": record.run.run_group}
            case "history":
                items = {i.key or ".".join(i.nested_key): i.value_json for i in record.history.item}
                told["history"].append({key: json.loads(text) for key, text in items.items()})
            case "summary":
                items = {
                    i.key or ".".join(i.nested_key): i.value_json for i in record.summary.update
                }
                told["summary"] |= {key: json.loads(text) for key, text in items.items()}
    return told


@pytest.mark.slow
def test_wandb_offline_has_every_step_once_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    kill_a_run_after_step_3(tmp_path, "WandbTracker", "wandb")
    go_on(WandbTracker(tmp_path))
    files = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"), key=os.path.getmtime)
    parts = [told_to_wandb(file) for file in files]
    # Two attempts of one run: `wandb sync` lays them together by its id.
    assert {(part["id"], part["group"]) for part in parts} == {("r1-rl", "r1")}
    points = [(row["_step"], row["rl/x"]) for part in parts for row in part["history"]]
    assert points == [(step, 10.0 * step) for step in range(1, 6)]
    assert parts[-1]["summary"]["status"] == "succeeded"


class Noting(CurveMirror):
    """Notes what it is told."""

    def __init__(self, stage: MirroredStage, said: list[Any]) -> None:
        self._said = said
        said.append(("open", stage.run, stage.stage, stage.told))

    def log(self, step: int, values: Any) -> None:
        self._said.append((step, dict(values)))

    def flush(self) -> None:
        self._said.append("flush")

    def close(self, status: Status, metrics: Any) -> None:
        self._said.append((status, dict(metrics)))


def attempt(folder: Path, run: str, last: int, status: Status | None) -> list[Any]:
    said: list[Any] = []
    writer = MirrorWriter(folder, lambda stage: Noting(stage, said))
    writer.start("r", Started("demo", tags={"posttrain.run": run}), 0.0)
    writer.start("s", Started("rl", "r", tags={"posttrain.key": "key"}), 0.0)
    for step in range(1, last + 1):
        writer.metrics("s", step, {"x": float(step)}, 0.0)
    if status is not None:
        writer.finish("s", Finished(status, {"x": 9.0}), 0.0)
    writer.close()
    return said


def test_a_stage_goes_on_in_its_mirror_until_it_succeeds(tmp_path: Path) -> None:
    assert attempt(tmp_path, "r1", 2, None)[-1] == ("killed", {})
    again = attempt(tmp_path, "r2", 3, "failed")
    assert again == [("open", "r1", "rl", 2), (3, {"x": 3.0}), "flush", ("failed", {"x": 9.0})]
    assert attempt(tmp_path, "r3", 4, "succeeded")[:2] == [("open", "r1", "rl", 3), (4, {"x": 4.0})]
    assert attempt(tmp_path, "r4", 1, "succeeded")[:2] == [("open", "r4", "rl", 0), (1, {"x": 1.0})]


def opened(monkeypatch: pytest.MonkeyPatch, state: Path, **environment: str) -> list[type]:
    for name in ("POSTTRAIN_TRACKING", "OPENLINEAGE_URL", "OPENLINEAGE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    tracker = open_tracker(state)
    several = isinstance(tracker, SeveralTrackers)
    return [type(each) for each in (tracker._trackers if several else [tracker])]


def test_the_environment_chooses_trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = {"OPENLINEAGE_URL": "http://127.0.0.1:9"}
    assert opened(monkeypatch, tmp_path) == [MlflowTracker]
    assert opened(monkeypatch, tmp_path, POSTTRAIN_TRACKING="tensorboard") == [TensorboardTracker]
    assert opened(monkeypatch, tmp_path, POSTTRAIN_TRACKING="wandb, mlflow") == [
        MlflowTracker,
        WandbTracker,
    ]
    assert opened(monkeypatch, tmp_path, **url) == [MlflowTracker, OpenLineageTracker]
    assert opened(monkeypatch, tmp_path, POSTTRAIN_TRACKING="off", **url) == [MemoryTracker]
    with pytest.raises(UserError, match="no tracker 'wand'.*wandb"):
        opened(monkeypatch, tmp_path, POSTTRAIN_TRACKING="mlflow,wand")
    for place, said in (("nowhere:Lines", "nowhere"), ("posttrain.views:Lines", "Lines")):
        with pytest.raises(UserError, match=f"there is no tracker at '{place}': .*{said}"):
            opened(monkeypatch, tmp_path, POSTTRAIN_TRACKING=place)


def test_several_trackers_hear_the_same_and_the_first_one_has_the_ids() -> None:
    first, second = MemoryTracker(), MemoryTracker()
    second.start(Started("another"))  # so that their handles differ
    first.external_id = lambda handle: f"id of {handle}"  # type: ignore[method-assign]
    both = SeveralTrackers(first, second)
    run = both.start(Started("demo", tags={"posttrain.run": "r1"}))
    stage = both.start(Started("rl", run))
    both.metrics(stage, 1, {"x": 1.0})
    both.finish(stage, Finished("succeeded"))
    both.attach("r1", [Path("report.html")])
    assert both.close() is None
    assert both.external_id(stage) == "id of rl-1"
    assert second.runs["rl-2"].started.parent == "demo-1"
    assert first.runs["rl-1"].steps == second.runs["rl-2"].steps == [(1, {"x": 1.0})]
    assert second.runs["demo-1"].files == (Path("report.html"),)


@pytest.mark.slow
def test_a_mirror_that_cannot_be_written_is_said_and_nothing_else_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("POSTTRAIN_TENSORBOARD", str(tmp_path / "file"))
    tracker = TensorboardTracker(tmp_path / "state")
    run = tracker.start(Started("demo", tags={"posttrain.run": "r1"}))
    tracker.start(Started("rl", run, tags={"posttrain.key": "k"}))
    assert "TensorBoard tracking stopped: " in str(tracker.close())


OWN = """
from posttrain.views.tracking import Tracker


class Lines(Tracker):
    def __init__(self, state):
        self.file = (state / "lines.txt").open("a")

    def start(self, started):
        return started.name

    def metrics(self, handle, step, values):
        pass

    def finish(self, handle, finished):
        print(handle, finished.status, file=self.file, flush=True)
"""


def test_a_tracker_of_ones_own_is_told_of_a_run(toy: Any) -> None:
    (toy.root / "mine.py").write_text(OWN)
    toy.cli("run", "--local", env={"POSTTRAIN_TRACKING": "mine:Lines"})
    lines = (toy.root / ".posttrain" / "lines.txt").read_text().splitlines()
    assert [line.split()[-1] for line in lines] == ["succeeded"] * 4
    assert [line.split()[0] for line in lines[:3]] == ["first", "second", "third"]
