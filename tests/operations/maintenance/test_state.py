"""What runs leave beside the cache."""

from types import SimpleNamespace

import pytest

from posttrain.operations.maintenance.claims import Claims
from posttrain.operations.maintenance.state import mlflow_nodes


@pytest.mark.slow
def test_artifacts_of_runs_that_mlflow_deleted_go_and_those_of_kept_runs_stay(tmp_path):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.create_experiment("e")
    ids = [client.create_run(experiment).info.run_id for _ in range(4)]
    kept, kept_but_deleted, let_go, unknown = ids
    client.delete_run(kept_but_deleted)
    for each in (*ids, "not-an-id"):
        (tmp_path / "mlartifacts" / each).mkdir(parents=True)
    ledger = SimpleNamespace(
        runs=lambda: [SimpleNamespace(mlflow_run_id=each, id=f"run {each}") for each in ids[:3]],
        every_stage_run=list,
    )
    claims = Claims(kept_runs={f"run {kept}", f"run {kept_but_deleted}"})
    reasons = {node.name: node.reasons for node in mlflow_nodes(tmp_path, claims, ledger)}
    assert reasons == {
        kept: ("its run is kept",),
        kept_but_deleted: (),
        let_go: (),
        unknown: ("no ledger here knows it",),
    }


def test_without_a_database_of_mlflow_nothing_counts_as_deleted(tmp_path):
    (tmp_path / "mlartifacts" / ("a" * 32)).mkdir(parents=True)
    ledger = SimpleNamespace(runs=list, every_stage_run=list)
    (node,) = mlflow_nodes(tmp_path, Claims(), ledger)
    assert node.reasons == ("no ledger here knows it",)
