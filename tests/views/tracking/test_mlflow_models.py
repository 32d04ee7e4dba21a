"""What MLflow's pages of models, runs and traces show, in a real SQLite store of MLflow's."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from posttrain.provenance.ledger import Run, StageRun, open_ledger
from posttrain.provenance.ledger.origins import RunOrigin, note_origin
from posttrain.provenance.ledger.records import ArtifactRecord
from posttrain.views.tracking.kinds import MlflowTracker
from posttrain.views.tracking.mlflow_entities import MetricTies, measured_on, model_name
from posttrain.views.tracking.projection import (
    headline_metrics,
    rebuild,
    run_finished,
    run_started,
    stage_finished,
    stage_started,
)

HELDOUT = ArtifactRecord("problems", "problems", "data/s/heldout.parquet", "aa" * 32, 10, 3, "s")
BASE = ArtifactRecord("policies.base", "checkpoint", "models/base", "bb" * 32, 99)
POLICY = ArtifactRecord("policy", "checkpoint", "data/rl/policy", "cc" * 32, 99, None, "rl")
ROLLOUTS = ArtifactRecord("rollouts", "rollouts", "data/rl/rollouts.parquet", "dd" * 32, 9, 2, "rl")
ORIGIN = RunOrigin(
    "Ada", "main", "https://example.org/a.git", {"rl.steps": "2", "method": '"dapo"'}
)
RUN = Run("r1", "models", 1000.0, "posttrain run", 1100.0, "succeeded", "c0ffee")
RL = StageRun(
    "s1",
    "r1",
    "rl",
    "tasks.rl",
    "k1",
    "succeeded",
    1001.0,
    1042.0,
    components={"params": {"steps": "2"}},
    timings={"execute": 41.0},
    inputs=(replace(HELDOUT, path="data/s/problems.parquet"),),
    outputs=(POLICY, ROLLOUTS),
    metrics={"rl/reward": 0.5, "rl/entropy": 0.1},
)
EVALUATE = StageRun(
    "s2",
    "r1",
    "evaluate",
    "tasks.evaluate",
    "k2",
    "succeeded",
    1043.0,
    1050.0,
    inputs=(BASE, replace(POLICY, role="policies.rl"), HELDOUT),
    metrics={
        "evaluate/base/pass_at_1": 0.25,
        "evaluate/rl/pass_at_1": 0.75,
        "evaluate/rl/mean_length": 9.0,
        "evaluate/num_problems": 3.0,
    },
)


def tell(tracker: MlflowTracker, places: dict[str, Path], files: list[Path]) -> None:
    parent = tracker.start(run_started(RUN, ORIGIN, folder="recipes/a"))
    for record in (RL, EVALUATE):
        handle = tracker.start(stage_started(record, parent, find=lambda a: places.get(a.digest)))
        tracker.metrics(handle, 1, {f"{record.stage}/curve": 1.0})
        tracker.finish(handle, stage_finished(record, find=lambda a: places.get(a.digest)))
    tracker.finish(parent, run_finished(RUN, (RL, EVALUATE)))
    tracker.attach(RUN.id, files)
    assert tracker.close() is None


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of a project, with a report: two rollouts in a step, of the two problems known."""
    root = tmp_path_factory.mktemp("project")
    rows = {
        "id": ["b", "a", "c"],
        "problem_id": ["p1", "p2", "p1"],
        "step": [1, 1, 2],
        "text": ["4", "5", "no"],
        "reward": [1.0, 0.0, 0.0],
        "components": [[{"name": "correct", "value": 1.0}], [], []],
        "token_ids": [[1], [2], [3]],
    }
    pl.DataFrame(rows).write_parquet(root / "rollouts.parquet")
    asked = pl.DataFrame({"id": ["p1", "p3"], "prompt": ["2 + 2", "9"], "answer": ["4", "9"]})
    asked.write_parquet(root / "problems.parquet")
    (root / "report.html").write_text("<p>all</p>")
    return root


@pytest.fixture(scope="module")
def state(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What a live run leaves in a store, told by a writer of its own process."""
    folder = tmp_path_factory.mktemp("tracked") / "state"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        places = {
            ROLLOUTS.digest: project / "rollouts.parquet",
            HELDOUT.digest: project / "problems.parquet",
        }
        tell(MlflowTracker(folder), places, [project / "report.html"])
        yield folder


def client_of(state: Path, database: str = "mlflow.db") -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{state / database}")


def shown(client: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs and logged models of the experiment, by name."""
    experiment = client.get_experiment_by_name("models").experiment_id
    runs = client.search_runs([experiment])
    models = client.search_logged_models([experiment])
    return {run.info.run_name: run for run in runs}, {each.name: each for each in models}


def figures(model: Any) -> dict[str, tuple[float, str | None]]:
    return {each.key: (each.value, each.dataset_name) for each in model.metrics}


@pytest.mark.slow
def test_an_evaluations_figures_are_on_the_page_of_the_policy_they_are_of(state: Path) -> None:
    runs, models = shown(client_of(state))
    assert figures(models["rl-policy"]) == {
        "rl/reward": (0.5, "s.problems"),
        "rl/entropy": (0.1, "s.problems"),
        "evaluate/rl/pass_at_1": (0.75, "s.problems"),
        "evaluate/rl/mean_length": (9.0, "s.problems"),
    }
    assert models["rl-policy"].params == {"steps": "2"}
    assert models["rl-policy"].source_run_id == runs["rl"].info.run_id
    # No run made it, and it has a page all the same.
    assert figures(models["policies-base"]) == {"evaluate/base/pass_at_1": (0.25, "s.problems")}
    assert {each.run_id for each in models["policies-base"].metrics} == {
        runs["evaluate"].info.run_id
    }
    assert {each.dataset_digest for each in models["rl-policy"].metrics} == {("aa" * 32)[:36]}
    assert runs["evaluate"].data.metrics["evaluate/num_problems"] == 3.0


@pytest.mark.slow
def test_the_parent_has_headline_figures_what_the_recipe_states_and_who_ran_it(state: Path) -> None:
    runs, _ = shown(client_of(state))
    parent = runs["models"]
    assert parent.data.metrics == {
        "rl/reward": 0.5,
        "evaluate/base/pass_at_1": 0.25,
        "evaluate/rl/pass_at_1": 0.75,
    }
    assert parent.data.params == {"rl.steps": "2", "method": "dapo"}
    told = {name: parent.data.tags.get(f"mlflow.{name}") for name in ("user", "source.name")}
    assert told == {"user": "Ada", "source.name": "recipes/a/recipe.yaml"}
    git = {name: parent.data.tags[f"mlflow.source.git.{name}"] for name in ("branch", "repoURL")}
    assert git == {"branch": "main", "repoURL": "https://example.org/a.git"}
    assert parent.data.tags["mlflow.source.type"] == "LOCAL"
    assert "| evaluate/rl/pass_at_1 | 0.75 |" in parent.data.tags["mlflow.note.content"]


@pytest.mark.slow
def test_reports_and_a_sample_of_rollouts_are_artifacts_and_each_has_a_trace(state: Path) -> None:
    client = client_of(state)
    runs, _ = shown(client)
    assert [each.path for each in client.list_artifacts(runs["models"].info.run_id)] == [
        "report.html"
    ]
    table = json.loads(
        Path(client.download_artifacts(runs["rl"].info.run_id, "rollouts_sample.json")).read_text()
    )
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [(row["step"], row["id"], row["prompt"], row["text"]) for row in rows] == [
        (1, "a", None, "5"),
        (1, "b", "2 + 2", "4"),
        (2, "c", "2 + 2", "no"),
    ]
    assert "token_ids" not in table["columns"]
    assert "posttrain.not_shown" not in runs["rl"].data.tags

    experiment = runs["rl"].info.experiment_id
    traces = client.search_traces(locations=[experiment], run_id=runs["rl"].info.run_id)
    told = {each.info.tags["posttrain.rollout"]: each.data.spans[0] for each in traces}
    assert sorted(told) == ["a", "b", "c"]
    assert (told["b"].inputs, told["b"].outputs) == ("2 + 2", "4")
    # The problem of this one is not among those that are known.
    assert (told["a"].inputs, told["a"].attributes["problem_id"]) == ("problem p2", "p2")
    assert told["b"].attributes["reward"] == 1.0
    assert {each.info.request_time for each in traces} == {1_042_000}


@pytest.mark.slow
def test_a_rebuild_shows_the_same_models_parents_and_what_is_still_kept(
    state: Path, project: Path, tmp_path: Path
) -> None:
    kept = state / "runs" / "r1" / "report.html"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes((project / "report.html").read_bytes())
    with open_ledger(tmp_path / "ledger.db") as ledger:
        ledger.append_run(RUN, process="elsewhere 1 x")
        note_origin(ledger.annotations, RUN.id, ORIGIN)
        ledger.annotations.note("recipe_folder", {RUN.id: "recipes/a"})
        ledger.record(RL, EVALUATE)
        assert rebuild(ledger, state, uri=f"sqlite:///{state / 'again.db'}") == 2
    (runs, models), (live_runs, live) = (
        shown(client_of(state, name)) for name in ("again.db", "mlflow.db")
    )
    assert {name: figures(each) for name, each in models.items()} == {
        name: figures(each) for name, each in live.items()
    }
    ours = ("posttrain.process", "mlflow.loggedArtifacts", "mlflow.parentRunId")
    for name in ("models", "rl", "evaluate"):
        told, before = (
            {key: text for key, text in each[name].data.tags.items() if key not in ours}
            for each in (runs, live_runs)
        )
        assert told == before
    assert runs["models"].data.params == live_runs["models"].data.params
    again = client_of(state, "again.db").list_artifacts(runs["models"].info.run_id)
    assert [each.path for each in again] == ["report.html"]


@pytest.mark.slow
def test_a_table_that_cannot_be_read_costs_its_sample_and_nothing_else(
    state: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"no parquet")
    tracker = MlflowTracker(state)
    run = replace(RUN, id="r2", recipe="broken")
    parent = tracker.start(run_started(run))
    handle = tracker.start(stage_started(RL, parent))
    broken = {ROLLOUTS.digest: tmp_path / "broken.parquet"}
    tracker.finish(handle, stage_finished(RL, find=lambda each: broken.get(each.digest)))
    tracker.finish(parent, run_finished(run))
    assert tracker.close() is None
    client = client_of(state)
    found = client.get_run(tracker.external_id(handle))
    assert found.info.status == "FINISHED"
    assert "Error" in found.data.tags["posttrain.not_shown"]


def test_whose_a_figure_is() -> None:
    evaluation = MetricTies(read={"base": "m-1", "rl": "m-2", "reward_model": "m-3"})
    assert evaluation.model("evaluate/rl/pass_at_1") == "m-2"
    assert evaluation.model("evaluate/num_problems") is None
    assert MetricTies(read={"policy": "m-1"}).model("probe/solve_rate") == "m-1"
    together = MetricTies(made={"blue": "m-1", "red": "m-2"})
    assert together.model("coevolve/red/reward") == "m-2"
    assert together.model("coevolve/reward") is None
    assert MetricTies(made={"policy": "m-1"}).model("seconds/execute") is None


def test_an_evaluation_measures_on_its_problems_and_training_on_its_first_table() -> None:
    traces = replace(HELDOUT, role="traces", type="completions", producer="curate")
    assert measured_on((POLICY, traces, HELDOUT)) == ("s.problems", ("aa" * 32)[:36])
    assert measured_on((traces,)) == ("curate.traces", ("aa" * 32)[:36])
    assert measured_on((POLICY,)) is None
    assert model_name(BASE) == "policies-base"


def test_headline_figures_are_named_by_their_stage() -> None:
    other = replace(RL, stage="rl_kl", metrics={"rl/reward": 0.6})
    assert headline_metrics((RL, other)) == {"rl/reward": 0.5, "rl_kl/reward": 0.6}
