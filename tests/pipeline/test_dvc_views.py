"""What stock DVC shows of a recipe: its metrics, curves, models and what its stages are for."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import polars as pl
import pytest

from posttrain.data.schemas import CURVE
from posttrain.data.tables import write_table
from posttrain.pipeline.dvc_views import keep_views
from posttrain.provenance.ledger import ArtifactRecord, StageRun
from posttrain.stage.hashing import KeyDigest
from tests.operations.test_clones import save

TASK = '''
"""Adds numbers, and draws how."""
from posttrain.stage.spec import ArtifactKind, Port, Task
from PACKAGE.config import Config
TASK = Task("PACKAGE", Config, {"source": Port(ArtifactKind.CURVE, "before", optional=True),
    "files": Port(ArtifactKind.SOURCE, "files", many=True, optional=True)},
    {"result": Port(ArtifactKind.CURVE, "the way to the sum"),
     "policy": Port(ArtifactKind.CHECKPOINT, "a model of sums")})
'''
STAGE = """
import numpy as np
import polars as pl
from safetensors.numpy import save_file
from posttrain.data.schemas import CURVE
from posttrain.data.tables import write_table
def run(config, inputs, outputs, context):
    rows = [(step, "toy/loss", config.amount / step) for step in (1, 2, 4)]
    write_table(pl.DataFrame(rows, schema=CURVE, orient="row"), outputs["result"], CURVE)
    outputs["policy"].mkdir()
    (outputs["policy"] / "config.json").write_text(str(config.amount))
    save_file({"weight": np.ones(1)}, outputs["policy"] / "model.safetensors")
    return {"toy/sum": float(config.amount)}
"""


def record(name="sft", status="succeeded", outputs=(), **metrics):
    return StageRun(
        id=name, run_id="r", stage=name, task="tasks.sft", key=KeyDigest("k"), status=status,
        started=0.0, ended=1.0, outputs=tuple(outputs), metrics=metrics,
    )  # fmt: skip


def curve(folder, rows, path="data/sft/curve.parquet"):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    write_table(pl.DataFrame(rows, schema=CURVE, orient="row"), folder / path, CURVE)
    return ArtifactRecord("curve", "curve", path, "d", 1)


def test_metrics_stand_by_stage_and_stages_that_did_not_run_keep_theirs(tmp_path):
    stages = ["sft", "probe_late", "evaluate"]
    sft = record(**{"sft/loss": 0.5, "sft/nan": math.nan, "sft/a/b": 2.0})
    late = record("probe_late", **{"probe/solve_rate": 0.25})
    keep_views(tmp_path, {"sft": sft, "probe_late": late}, stages)
    file = tmp_path / "metrics.json"
    assert json.loads(file.read_text()) == {
        "sft": {"a/b": 2.0, "loss": 0.5},
        "probe_late": {"solve_rate": 0.25},
    }
    keep_views(tmp_path, {"sft": record(**{"sft/loss": 0.4})}, stages)
    assert json.loads(file.read_text())["probe_late"] == {"solve_rate": 0.25}
    assert json.loads(file.read_text())["sft"] == {"loss": 0.4}
    # A stage that the flow no longer has; and a file that somebody broke, which is ours to write.
    keep_views(tmp_path, {}, ["sft"])
    assert list(json.loads(file.read_text())) == ["sft"]
    file.write_text("<<<<<<< ours\n")
    keep_views(tmp_path, {"sft": sft}, stages)
    assert json.loads(file.read_text()) == {"sft": {"a/b": 2.0, "loss": 0.5}}


def test_what_says_the_same_is_not_written_again(tmp_path):
    made = record(outputs=[curve(tmp_path, [(1, "sft/loss", 3.0), (2, "sft/loss", 2.0)])])
    keep_views(tmp_path, {"sft": made}, ["sft"])
    files = [tmp_path / "metrics.json", tmp_path / "plots/sft/loss.tsv"]
    assert files[1].read_text() == "step\tloss\n1\t3.0\n2\t2.0\n"
    assert not files[0].exists()
    before = files[1].stat().st_mtime_ns
    keep_views(tmp_path, {"sft": made}, ["sft"])
    assert files[1].stat().st_mtime_ns == before
    # What lies there of a stage that was up to date is not even compared.
    files[1].write_text("mine")
    keep_views(tmp_path, {"sft": replace(made, status="cached")}, ["sft"])
    assert files[1].read_text() == "mine"


def test_a_long_curve_is_thinned_and_single_or_infinite_points_are_left_out(tmp_path):
    rows = [(step, "sft/loss", float(step)) for step in range(1, 1001)]
    rows += [(1, "sft/once", 1.0), (1, "sft/kl/mean", 1.0), (2, "sft/kl/mean", math.inf)]
    rows += [(3, "sft/kl/mean", 3.0)]
    keep_views(tmp_path, {"sft": record(outputs=[curve(tmp_path, rows)])}, ["sft"])
    plots = tmp_path / "plots/sft"
    lines = (plots / "loss.tsv").read_text().splitlines()[1:]
    assert (len(lines), lines[0], lines[-1]) == (200, "1\t1.0", "1000\t1000.0")
    assert (plots / "kl/mean.tsv").read_text() == "step\tkl/mean\n1\t1.0\n3\t3.0\n"
    assert not (plots / "once.tsv").exists()


def dvc(folder, *words):
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_stock_dvc_shows_metrics_curves_and_experiments(toy):
    from dvc.repo import Repo

    for name, text in (("__init__", TASK), ("stage", STAGE)):
        toy.write(f"{toy.package}/{name}.py", text.lstrip("\n").replace("PACKAGE", toy.package))
    toy.run()
    save(toy)
    assert dvc(toy.root, "status").strip() == "Data and pipelines are up to date."
    toy.recipe("second: {amount: 5}\n")
    toy.run()
    diff = json.loads(dvc(toy.root, "metrics", "diff", "--json"))
    assert diff["metrics.json"]["second.sum"] == {"old": 1.0, "new": 5.0, "diff": 4.0}
    assert not [name for name in diff["metrics.json"] if not name.startswith("second")]
    shown = json.loads(dvc(toy.root, "plots", "diff", "HEAD", "--json"))["data"]
    assert set(shown) == {f"plots/{stage}/loss.tsv" for stage in ("first", "second", "third")}
    (plot,) = shown["plots/second/loss.tsv"]
    values = plot["content"]["data"]["values"]
    drawn = {(each["rev"], each["step"], each["loss"]) for each in values}
    assert {("HEAD", "4", "0.25"), ("workspace", "4", "1.25")} <= drawn
    dvc(toy.root, "plots", "show")
    table = dvc(toy.root, "exp", "show", "--csv")
    assert "second.sum" in table.splitlines()[0]
    stages = dvc(toy.root, "stage", "list")
    assert stages.count("Adds numbers, and draws how.") == 3
    (models,) = Repo(str(toy.root)).artifacts.read().values()
    assert set(models) == {"first-policy", "second-policy", "third-policy"}
    found = models["second-policy"]
    assert (found.path, found.type) == ("data/second/policy", "model")
    assert found.desc == "a model of sums"
