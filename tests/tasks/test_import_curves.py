"""Runs of a tracker become one curve: what is read, what is left out, means and intervals."""

import json
import sqlite3
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import fmean
from urllib.parse import parse_qsl, urlsplit

import pytest
import torch

from posttrain.data.run_sources.base import FetchedRun
from posttrain.data.run_sources.mlflow_database import MlflowDatabase
from posttrain.data.run_sources.mlflow_server import MlflowServer
from posttrain.data.schemas import CURVE
from posttrain.data.tables import read_table
from posttrain.learning.maths.intervals import interquartile_mean, stratified_interval
from posttrain.learning.rollouts.diagnostics.base import Seen
from posttrain.learning.rollouts.diagnostics.tracked_curves import TrackedCurves
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.import_curves import tracked_runs
from tasks.import_curves.config import ImportCurvesConfig
from tasks.import_curves.stage import run

# Run: seed, environment, status, and (step, timestamp, return).
RUNS = {
    "a": ("1", "cart", "FINISHED", [(0, 1, 1.0), (1, 2, 2.0)]),
    # Logged twice at step 1: what came last counts, however it was written.
    "b": ("2", "cart", "FINISHED", [(1, 9, 4.0), (1, 3, 7.0), (0, 2, 3.0), (2, 9, 9.0)]),
    "c": ("3", "cart", "FINISHED", [(0, 1, 5.0), (1, 2, 6.0), (2, 3, float("nan"))]),
    "d": ("1", "pole", "FINISHED", [(0, 1, 7.0), (1, 2, 8.0)]),
    "e": ("4", "cart", "RUNNING", [(0, 1, 9.0), (1, 2, 9.0)]),
    "f": ("5", "cart", "FINISHED", []),
}


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A database of MLflow's, written by MLflow itself."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    written = tmp_path_factory.mktemp("written") / "mlflow.db"
    client = MlflowClient(tracking_uri=f"sqlite:///{written}")
    folder = path.parent.as_uri()
    experiment = client.create_experiment("ppo", artifact_location=folder)
    client.create_run(client.create_experiment("dqn", artifact_location=folder))
    for name, (seed, env, status, points) in RUNS.items():
        made = client.create_run(experiment, run_name=name, tags={"seed": seed, "who": "us"})
        client.log_param(made.info.run_id, "env", env)
        for step, stamp, value in points:
            client.log_metric(made.info.run_id, "return", value, timestamp=stamp, step=step)
        if status == "FINISHED":
            client.set_terminated(made.info.run_id, status)
    # Where posttrain's tracking was imported before, this process writes every database ahead; a
    # whole copy is none.
    with closing(sqlite3.connect(written)) as whole:
        whole.execute(f"VACUUM INTO '{path}'")
    return path


class MlflowApi(BaseHTTPRequestHandler):
    """The three addresses that are asked, a run or a point a page."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        parts = urlsplit(self.path)
        asked = dict(parse_qsl(parts.query))
        if parts.path.endswith("/experiments/get-by-name"):
            if asked["experiment_name"] != "ppo":
                return self.send(404, {"error_code": "RESOURCE_DOES_NOT_EXIST"})
            return self.send(200, {"experiment": {"experiment_id": "7"}})
        assert parts.path == "/api/2.0/mlflow/metrics/get-history"
        assert asked["metric_key"] == "return"
        points = [
            {"step": step, "timestamp": stamp, "value": "NaN" if value != value else value}
            for step, stamp, value in RUNS[asked["run_id"]][3]
        ]
        return self.page("metrics", points, asked)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/api/2.0/mlflow/runs/search"
        assert asked["experiment_ids"] == ["7"]
        assert asked["filter"] == "attributes.status = 'FINISHED'"
        runs = [
            {
                "info": {"run_id": name, "run_name": name},
                "data": {
                    "params": [{"key": "env", "value": env}],
                    "tags": [{"key": "seed", "value": seed}, {"key": "who", "value": "us"}],
                },
            }
            for name, (seed, env, status, _) in RUNS.items()
            if status == "FINISHED"
        ]
        return self.page("runs", runs, asked)

    def page(self, of, rows, asked):
        at = int(asked.get("page_token", "0"))
        more = {"next_page_token": str(at + 1)} if at + 1 < len(rows) else {}
        self.send(200, {of: rows[at : at + 1], **more})

    def send(self, status, content):
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@pytest.fixture(scope="module")
def url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), MlflowApi)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def points(runs):
    return {each.name: each.points["return"] for each in runs}


EXPECTED = {
    "a": {0: 1.0, 1: 2.0},
    "b": {0: 3.0, 1: 4.0, 2: 9.0},
    "c": {0: 5.0, 1: 6.0},
    "d": {0: 7.0, 1: 8.0},
    "f": {},
}


@pytest.mark.slow
def test_a_database_of_mlflow_is_read_and_not_changed(database):
    before = database.read_bytes()
    source = MlflowDatabase(file="mlflow.db", experiment="ppo")
    assert source.path() == "mlflow.db"
    found = source.runs(["return"], {}, database)
    assert points(found) == EXPECTED
    facts = {each.name: each.facts for each in found}
    assert (facts["d"]["env"], facts["d"]["seed"], facts["d"]["who"]) == ("pole", "1", "us")
    assert points(source.runs(["return"], {"env": "pole", "seed": "1"}, database)) == {
        "d": EXPECTED["d"]
    }
    assert database.read_bytes() == before
    assert [each.name for each in database.parent.iterdir()] == ["mlflow.db"]


def test_a_server_is_asked_page_by_page(url):
    source = MlflowServer(url=f"{url}/", experiment="ppo")
    assert source.reaches()
    assert points(source.runs(["return"], {}, None)) == EXPECTED
    assert points(source.runs(["return"], {"seed": "2"}, None)) == {"b": EXPECTED["b"]}


def test_a_database_whose_last_runs_may_lie_in_a_log_is_refused(database, tmp_path):
    path = tmp_path / "runs.db"
    path.write_bytes(database.read_bytes())
    source = MlflowDatabase(file="runs.db", experiment="ppo")
    with closing(sqlite3.connect(path)) as open_elsewhere:
        open_elsewhere.execute("PRAGMA journal_mode=WAL")
        with pytest.raises(UserError, match=r"sqlite3 runs.db \"VACUUM INTO 'copy.db'\""):
            source.runs(["return"], {}, path)
        open_elsewhere.execute(f"VACUUM INTO '{tmp_path / 'whole.db'}'")
    assert points(source.runs(["return"], {}, tmp_path / "whole.db")) == EXPECTED


def test_what_no_tracker_has_is_refused(database, url, tmp_path):
    with pytest.raises(UserError, match="no experiment 'pop'; did you mean 'ppo'"):
        MlflowDatabase(file="mlflow.db", experiment="pop").runs(["return"], {}, database)
    with pytest.raises(UserError, match=r"refuses experiments/get-by-name \(404\)"):
        MlflowServer(url=url, experiment="pop").runs(["return"], {}, None)
    (tmp_path / "other.db").write_text("nothing")
    with pytest.raises(UserError, match=r"other.db: this is no database of MLflow's"):
        MlflowDatabase(file="other.db", experiment="ppo").runs([], {}, tmp_path / "other.db")
    sqlite3.connect(tmp_path / "empty.db").close()
    with pytest.raises(UserError, match="no such table: experiments"):
        MlflowDatabase(file="empty.db", experiment="ppo").runs([], {}, tmp_path / "empty.db")
    with pytest.raises(UserError, match="does not answer: .*; start the server"):
        MlflowServer(url="http://127.0.0.1:9", experiment="ppo").runs([], {}, None)
    with pytest.raises(ValueError, match="without a password"):
        MlflowServer(url="http://me:secret@host", experiment="ppo")


def test_the_interquartile_mean_by_hand():
    """Of 5 runs one is cut at either end, of 3 none; columns stand by themselves."""
    five = torch.tensor([[5.0, 0.0], [1.0, 9.0], [90.0, 3.0], [3.0, 3.0], [4.0, 3.0]])
    assert interquartile_mean(five).tolist() == [4.0, 3.0]
    assert interquartile_mean(five[:3]).tolist() == [32.0, 4.0]


def test_resamples_stay_within_a_stratum():
    """One run of each task: every resample is the runs themselves. Of one task they vary."""
    values = torch.tensor([[1.0], [2.0], [6.0]])
    settings = {"resamples": 500, "confidence": 0.9, "seed": 3}
    apart = stratified_interval(values, ["a", "b", "c"], **settings)
    assert [each.item() for each in apart] == [3.0, 3.0, 3.0]
    joint = stratified_interval(values, ["a"] * 3, **settings)
    # All three are the first with probability 1/27, less than the twentieth that is cut; the least
    # mean beyond is 4/3, and the largest below 6 is 14/3.
    assert joint.estimate.item() == 3.0
    assert joint.low.item() == pytest.approx(4 / 3)
    assert joint.high.item() == pytest.approx(14 / 3)
    again = stratified_interval(values, ["a"] * 3, **settings)
    assert torch.equal(again.low, joint.low)


def imported(tmp_path, database, **config):
    outputs = {
        name: tmp_path / file
        for name, file in {
            "curve": "curve.parquet",
            "runs": "runs.parquet",
            "report": "report.json",
        }.items()
    }
    source = {"kind": "mlflow_database", "file": "mlflow.db", "experiment": "ppo"}
    settings = ImportCurvesConfig.parse(
        {"source": source, "metrics": {"rl/reward": "return"}, **config}, where="import_curves"
    )
    assert settings.local_files() == {"runs": "mlflow.db"}
    metrics = run(
        settings, {"files.runs": database}, outputs, StageContext.quiet(tmp_path / "scratch")
    )
    return outputs, metrics


def test_one_curve_is_drawn_over_the_steps_that_all_runs_have(database, tmp_path):
    outputs, metrics = imported(tmp_path, database, task="env", least_runs=1)
    curve = read_table(outputs["curve"], CURVE)
    found = {
        name: dict(curve.filter(metric=name).select("step", "value").iter_rows())
        for name in ("rl/reward", "rl/reward/low", "rl/reward/high")
    }
    # Of 1, 3, 5 and 7 the middle two; of 2, 4, 6 and 8 as well. Step 2 is b's alone.
    assert found["rl/reward"] == {0: 4.0, 1: 5.0}
    for step in (0, 1):
        assert found["rl/reward/low"][step] < found["rl/reward"][step]
        assert found["rl/reward"][step] < found["rl/reward/high"][step]
    assert metrics["import_curves/rl/reward"] == 5.0
    report = json.loads(outputs["report"].read_text())
    assert report["tasks"] == {"cart": 3, "pole": 1}
    assert report["without_a_metric"] == 1
    rows = read_table(outputs["runs"], tracked_runs())
    assert {
        (row["name"], row["task"], row["step"], row["metric"], row["value"])
        for row in rows.to_dicts()
    } >= {("b", "cart", 2, "rl/reward", 9.0), ("d", "pole", 0, "rl/reward", 7.0)}
    assert rows["id"].n_unique() == len(rows) == 9


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"where": {"env": "none"}}, "0 runs have ended and have return, of 0 that fit where"),
        ({"task": "env"}, "1 runs of env pole have ended .*; least_runs asks for 2"),
        ({"task": "envv"}, "run . .* has no parameter or tag 'envv'"),
        ({"metrics": {"rl/reward": "loss"}}, "0 runs have ended and have loss, of 5 that fit"),
    ],
)
def test_runs_that_draw_no_curve_are_refused(database, tmp_path, config, said):
    with pytest.raises(UserError, match=said):
        imported(tmp_path, database, **config)


def test_runs_without_a_common_step_are_refused(database, tmp_path, monkeypatch):
    apart = [FetchedRun(str(k), "x", {}, {"return": {k: 1.0}}) for k in (1, 2)]
    monkeypatch.setattr(MlflowDatabase, "runs", lambda *_: apart)
    with pytest.raises(UserError, match="the 2 runs have no step of return in common"):
        imported(tmp_path, database)


def test_own_curves_are_drawn_and_held_beside_the_imported_one(database, tmp_path):
    outputs, _ = imported(tmp_path, database, where={"env": "cart"})
    there = read_table(outputs["curve"], CURVE)
    ends = {
        name: fmean(there.filter(metric=f"rl/reward{name}")["value"])
        for name in ("", "/low", "/high")
    }
    (tmp_path / "own").mkdir()
    own, _ = imported(tmp_path / "own", database, where={"seed": "1"})
    seen = Seen(curves={"tracked": outputs["curve"], "rl": own["curve"]})
    part = TrackedCurves(published="tracked", window=2)
    found = part.diagnose(seen)
    # Own: the mean of 1 and 7, and of 2 and 8; the tracked ones' of 1, 3, 5 and of 2, 4, 6.
    assert found.figures["rl"] == {
        "published": pytest.approx(3.5),
        "low": pytest.approx(ends["/low"]),
        "high": pytest.approx(ends["/high"]),
        "own": 4.5,
        "off": pytest.approx(1.0),
        "inside": float(ends["/low"] <= 4.5 <= ends["/high"]),
        "at": 1.0,
    }
    assert [(line.name, list(line.x), list(line.y)) for line in found.lines] == [
        ("tracked (published)", [0, 1], [3.0, 4.0]),
        ("rl", [0, 1], [4.0, 5.0]),
    ]
    assert len(found.lines[0].low) == len(found.lines[0].high) == 2
    with pytest.raises(UserError, match="no curve is connected as 'track'"):
        TrackedCurves(published="track").diagnose(seen)
    with pytest.raises(UserError, match="has no rl/kl with an interval"):
        TrackedCurves(published="tracked", metric="rl/kl").diagnose(seen)
    with pytest.raises(UserError, match="no own curve that is connected has rl/reward"):
        TrackedCurves(published="tracked").diagnose(Seen(curves={"tracked": outputs["curve"]}))
