"""The mirror of releases in MLflow: a real store, one without the release, one not answering."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from types import SimpleNamespace

import pytest

from posttrain.publishing.release import pointers, tags
from posttrain.publishing.release.names import parse_tag
from posttrain.publishing.release.registry import Registry
from posttrain.stage.errors import UserError

# Importing MLflow and making a store take most of it.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
NOWHERE = "http://me:secret@127.0.0.1:9"
FIRST, SECOND = parse_tag("mini@v1.0.0"), parse_tag("mini@v1.1.0")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An MLflow store that is empty: making its tables takes seconds, so that tests copy it."""
    folder = tmp_path_factory.mktemp("mlflow")
    assert Registry(folder).assigned("mini", "prod") is None
    return folder / "mlflow.db"


@pytest.fixture
def store(tmp_path, made, monkeypatch):
    """A project with two releases in git, and a store of MLflow that knows neither."""
    (tmp_path / "mlflow.db").write_bytes(made.read_bytes())
    there = set()
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(tags, "release_tags", lambda root: {FIRST: "a", SECOND: "b"})
    monkeypatch.setattr(tags, "has_tag", lambda root, ref: ref in there)
    monkeypatch.setattr(tags, "write_tag", lambda root, ref, *_, **__: there.add(ref))
    monkeypatch.setattr(tags, "delete_tag", lambda root, ref: there.discard(ref))
    monkeypatch.setattr(
        tags,
        "current",
        lambda root, name, environment: next(
            (
                tags.Promotion(name, environment, 1, FIRST.version, 0.0, "")
                for ref in there
                if ref.startswith(f"{name}#{environment}#")
            ),
            None,
        ),
    )
    ledger = SimpleNamespace(annotations=SimpleNamespace(releases=list))
    return pointers.ReleaseStore(tmp_path, tmp_path, ledger, Registry(tmp_path))


@pytest.fixture
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def wait_for(address):
    for _ in range(600):
        with suppress(OSError):
            urllib.request.urlopen(address, timeout=5).close()
            return
        time.sleep(0.1)
    raise TimeoutError(address)


def without_server(store):
    return pointers.ReleaseStore(
        store.root, store.state, store.ledger, Registry(store.state, NOWHERE)
    )


def test_a_release_that_mlflow_does_not_know_is_refused_and_nothing_is_left(store):
    for known in (False, True):
        if known:
            store.registry.register("mini", "v1.1.0", "file:///there")
        with pytest.raises(UserError, match=r"no model version for mini@v1\.0\.0; .*=off"):
            pointers.promote(store, FIRST, "prod", "")
        assert not store.journal.exists()
        assert pointers.repair(store) == ""
    assert pointers.promote(store, SECOND, "prod", "").environment == "prod"
    assert store.registry.assigned("mini", "prod") == "v1.1.0"


@pytest.mark.parametrize("before", ["null", '"v1.0.0"'])
def test_what_a_kill_left_is_taken_back_where_mlflow_was_made_anew_meanwhile(store, before):
    note = f'{{"promotion": "mini#prod#2", "mirrored": true, "before": {before}}}'
    store.journal.write_text(note)
    assert pointers.repair(store) == "the promotion mini#prod#2"
    assert not store.journal.exists()
    store.registry.register("mini", "v1.1.0", "file:///there")
    store.journal.write_text(note)
    assert pointers.repair(store) == "the promotion mini#prod#2"
    assert store.registry.assigned("mini", "prod") is None


def test_an_alias_survives_a_promotion_while_mlflow_does_not_answer(store):
    for version in ("v1.0.0", "v1.1.0"):
        store.registry.register("mini", version, f"file:///{version}")
    pointers.promote(store, FIRST, "prod", "")
    with pytest.raises(
        UserError, match=r"at http://\*\*\*@127\.0\.0\.1:9 failed .*MLFLOW_TRACKING_URI"
    ) as said:
        pointers.promote(without_server(store), SECOND, "prod", "")
    assert "secret" not in str(said.value)
    assert not store.journal.exists()
    assert pointers.repair(store) == ""
    assert store.registry.assigned("mini", "prod") == "v1.0.0"


def test_what_was_noted_waits_for_mlflow_and_is_taken_back_then(store):
    for version in ("v1.0.0", "v1.1.0"):
        store.registry.register("mini", version, f"file:///{version}")
    store.registry.assign("mini", "prod", "v1.1.0")
    store.journal.write_text('{"promotion": "mini#prod#2", "mirrored": true, "before": "v1.0.0"}')
    with pytest.raises(UserError, match="then do this again"):
        pointers.repair(without_server(store))
    assert pointers.repair(store) == "the promotion mini#prod#2"
    assert store.registry.assigned("mini", "prod") == "v1.0.0"


@pytest.mark.parametrize(
    "call",
    [
        lambda registry: registry.register("mini", "v1.0.0", "file:///there"),
        lambda registry: registry.unregister("mini", "v1.0.0"),
        lambda registry: registry.require("mini", "v1.0.0"),
        lambda registry: registry.assign("mini", "prod", None),
        lambda registry: registry.assigned("mini", "prod"),
    ],
)
def test_a_server_that_does_not_answer_is_one_sentence_in_every_call(store, call):
    with pytest.raises(UserError, match="MLflow's registry at .* failed"):
        call(without_server(store).registry)


def test_a_damaged_database_is_a_sentence(store):
    (store.state / "mlflow.db").write_bytes(b"not sqlite at all" * 100)
    with pytest.raises(UserError, match="file is not a database"):
        store.registry.assigned("mini", "prod")


def logged(client):
    """A policy as MLflow shows it, made by a run, and one of the same bytes that was only read."""
    experiment = client.create_experiment("runs")
    run = client.create_run(experiment).info.run_id
    tags = {"posttrain.sha256": "cd" * 32}
    client.create_logged_model(experiment, name="read", tags=tags)
    made = client.create_logged_model(experiment, name="rl-policy", source_run_id=run, tags=tags)
    return run, made.model_id


def test_a_version_links_the_run_and_the_logged_model_that_its_policy_came_from(store):
    run, model = logged(store.registry._client)
    store.registry.register("mini", "v1.0.0", "file:///there", policy="cd" * 32)
    store.registry.register("mini", "v1.1.0", "file:///there", policy="ab" * 32)
    found = store.registry._client.search_model_versions("name='mini'")
    told = {each.tags["posttrain.release"]: each for each in found}
    linked, unknown = told["v1.0.0"], told["v1.1.0"]
    assert (linked.run_id, linked.source) == (run, "file:///there")
    assert not unknown.run_id
    listed = [{"name": "mini", "version": str(linked.version)}]
    tags_of = store.registry._client.get_logged_model(model).tags
    assert json.loads(tags_of["mlflow.modelVersions"]) == listed
    store.registry.unregister("mini", "v1.0.0")
    tags_of = store.registry._client.get_logged_model(model).tags
    assert json.loads(tags_of["mlflow.modelVersions"]) == []


def test_a_server_takes_a_release_of_a_model_that_it_knows(store, free_port):
    """A server refuses folders that are none of its artifacts, and takes its own models."""
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "OMP_NUM_THREADS": "1"}
    uri = f"http://127.0.0.1:{free_port}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
    command += ["--port", str(free_port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{store.state / 'mlflow.db'}"]
    with subprocess.Popen(command, cwd=store.state, env=environment, **QUIET) as server:
        try:
            wait_for(f"{uri}/health")
            registry = Registry(store.state, uri)
            run, model = logged(registry._client)
            registry.register("mini", "v1.0.0", "file:///there", policy="cd" * 32)
            (version,) = registry._client.search_model_versions("name='mini'")
            assert version.run_id == run
            assert version.source == f"models:/{model}"
            assert version.tags["posttrain.source"] == "file:///there"
        finally:
            server.terminate()
