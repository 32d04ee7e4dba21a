"""A stage that is resumed goes on in the MLflow run of the attempt that was killed."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.training.curve import Curve
from posttrain.pipeline.execution.attempt import note_run, resumed_run
from posttrain.stage.context import StageContext
from posttrain.views.tracking.base import Finished, Started
from posttrain.views.tracking.kinds import MlflowTracker


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One database for all, as creating it takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield tmp_path_factory.mktemp("state")


def client_of(state: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{state / 'mlflow.db'}")


def attempt(
    state: Path, recipe: str, steps: range, *, resumes: str | None = None, ends: bool = True
) -> str:
    """One attempt at a stage that logs ``x = 10 step`` at these steps; returns MLflow's id."""
    tracker = MlflowTracker(state)
    parent = tracker.start(Started(recipe))
    stage = tracker.start(Started("rl", parent, tags={"try": str(steps)}, resumes=resumes))
    for step in steps:
        tracker.metrics(stage, step, {"rl/x": 10.0 * step})
    if ends:
        tracker.finish(stage, Finished("succeeded", {"rl/x": -1.0, "seconds/run": 5.0}))
        tracker.finish(parent, Finished("succeeded"))
    assert tracker.close() is None
    found = tracker.external_id(stage)
    assert found is not None
    return found


def stages_of(client: Any, recipe: str) -> list[Any]:
    experiment = client.get_experiment_by_name(recipe).experiment_id
    runs = client.search_runs([experiment])
    return [run for run in runs if "mlflow.parentRunId" in run.data.tags]


@pytest.mark.slow
def test_there_is_one_run_with_every_step_once(state: Path) -> None:
    first = attempt(state, "whole", range(1, 6), ends=False)
    # The checkpoint was that of step 3; its rows are told again, and those after it anew.
    second = attempt(state, "whole", range(1, 9), resumes=first)
    client = client_of(state)
    (run,) = stages_of(client, "whole")
    assert first == second == run.info.run_id
    history = [(p.step, p.value) for p in client.get_metric_history(first, "rl/x")]
    curve = [(step, 10.0 * step) for step in range(1, 9)]
    assert sorted(history) == sorted([*curve, (8, -1.0)])
    assert (run.info.status, run.data.tags["try"]) == ("FINISHED", "range(1, 9)")
    assert run.data.metrics == {"rl/x": -1.0, "seconds/run": 5.0}
    newest = client.search_runs(
        [run.info.experiment_id], "attributes.run_name = 'whole' and attributes.status = 'FINISHED'"
    )
    assert run.data.tags["mlflow.parentRunId"] == newest[0].info.run_id


@pytest.mark.slow
def test_what_the_killed_executor_had_not_written_is_there_too(state: Path) -> None:
    first = attempt(state, "gap", range(1, 3), ends=False)
    attempt(state, "gap", range(1, 6), resumes=first)
    history = client_of(state).get_metric_history(first, "rl/x")
    assert sorted(p.step for p in history if p.value > 0) == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_a_run_that_is_not_there_is_no_reason_to_stop(state: Path) -> None:
    other = attempt(state, "elsewhere", range(1, 2))
    for gone in ("0" * 32, other):
        found = attempt(state, "new", range(1, 4), resumes=gone)
        assert found != gone
        history = client_of(state).get_metric_history(found, "rl/x")
        assert sorted(p.step for p in history if p.value > 0) == [1, 2, 3]


def test_only_a_checkpoint_leads_back_to_a_run(tmp_path: Path) -> None:
    assert resumed_run(tmp_path / "scratch") is None
    assert not note_run(tmp_path / "scratch", None)
    assert note_run(tmp_path / "scratch", "abc")
    assert resumed_run(tmp_path / "scratch") is None
    with closing(Checkpointer(tmp_path / "scratch", every=1)) as checkpointer:
        checkpointer.save(1, {})
    assert resumed_run(tmp_path / "scratch") == "abc"
    (manifest,) = (tmp_path / "scratch").rglob("manifest.json")
    assert json.loads(manifest.read_text())["mlflow_run_id"] == "abc"


def test_a_curve_is_told_again_when_it_is_taken_up(tmp_path: Path) -> None:
    events: list[Any] = []
    context = StageContext(0, 1, "cpu", tmp_path, emit=events.append)
    curve = Curve(context)
    curve.log(1, {"a": 1.0, "b": 2.0})
    curve.log(2, {"a": 3.0})
    told = list(events)
    again = Curve(context)
    again.load_state_dict(curve.state_dict())
    assert events[len(told) :] == told
