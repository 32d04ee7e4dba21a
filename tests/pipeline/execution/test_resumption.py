"""A run is killed in the middle of a stage, and run again: one curve in one MLflow run."""

import os
import subprocess
import sys
import time

import pytest

from posttrain.provenance.ledger import open_ledger

# Ten steps with a checkpoint at every second; the first attempt stays in the fifth.
STEPS = """
    from posttrain.learning.models.checkpoint import Checkpointer
    from posttrain.learning.training.curve import Curve
    from posttrain.learning.training.progress import Progress
    if "source" not in inputs:
        curve = Curve(context)
        progress = Progress({"curve": curve}, Checkpointer(context.scratch, every=2))
        for step in range(progress.restore("cpu") + 1, 11):
            curve.log(step, {"x": float(step)})
            progress.save_if_due(step)
            while step == 5 and not (context.scratch / "go").exists():
                (context.scratch / "waiting").touch()
                context.progress(step, 10)
                time.sleep(0.05)
    context.progress(1, 1)
"""


@pytest.mark.slow
def test_a_killed_stage_goes_on_in_the_mlflow_run_of_its_first_attempt(toy, edit):
    from mlflow import MlflowClient

    edit(toy.root / toy.package / "stage.py", "    context.progress(1, 1)\n", STEPS)
    environment = {name: v for name, v in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    first = subprocess.Popen(
        [sys.executable, "-m", "posttrain", "run", "--local"], cwd=toy.root, env=environment
    )
    deadline = time.monotonic() + 120
    # Past a checkpoint: an attempt that left none begins a run of its own.
    while not (
        list(toy.root.glob(".posttrain/scratch/*first*/waiting"))
        and (noted := list(toy.root.glob(".posttrain/scratch/*first*/mlflow_run_id")))
    ):
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.kill()
    first.wait()
    expected = noted[0].read_text()
    (noted[0].parent / "go").touch()
    again = toy.cli("run", "--local")
    assert again.returncode == 0, again.stderr
    client = MlflowClient(tracking_uri=f"sqlite:///{toy.root / '.posttrain/mlflow.db'}")
    runs = client.search_runs([each.experiment_id for each in client.search_experiments()])
    (found,) = [run for run in runs if run.data.tags.get("posttrain.stage") == "first"]
    assert (found.info.run_id, found.info.status) == (expected, "FINISHED")
    history = [(p.step, p.value) for p in client.get_metric_history(expected, "x")]
    assert sorted(history) == [(step, float(step)) for step in range(1, 11)]
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        done, killed = ledger.runs()
        assert (done.status, killed.status) == ("succeeded", "killed")
        stages = {each.stage: each for each in ledger.stage_runs(done.id)}
    assert stages["first"].mlflow_run_id == expected
