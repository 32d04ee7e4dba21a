"""OpenLineage events to a real local HTTP server, by OpenLineage's own client, and as an export."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attr
import polars as pl
import pytest

from posttrain.operations.bring_up import runner_of
from posttrain.pipeline.execution.display import Display
from posttrain.pipeline.execution.failures import StageFailed
from posttrain.pipeline.execution.session import open_session
from posttrain.provenance.ledger import Run, StageRun, open_ledger
from posttrain.provenance.ledger.records import ArtifactRecord
from posttrain.provenance.lineage import queries
from posttrain.provenance.lineage.names import find_node
from posttrain.provenance.lineage.render import FORMATS, View
from posttrain.provenance.lineage.render.openlineage import Surroundings, end_event, start_event
from posttrain.views.tracking import open_tracker
from posttrain.views.tracking.kinds import OpenLineageTracker
from posttrain.views.tracking.projection import run_finished, run_started

TABLE = ArtifactRecord("traces", "completions", "data/a/t.parquet", "ab" * 32, 10, 3, "a")
RUN = Run("r1", "demo", 1000.0, git_commit="c0ffee")
STAGE = StageRun(
    "s1",
    "r1",
    "sft",
    "tasks.sft",
    "k",
    "failed",
    1001.0,
    1002.0,
    components={"params": {"epochs": "2", "optimizer": '"muon"'}},
    inputs=(TABLE,),
    error="out of memory",
)


class Catalog(ThreadingHTTPServer):
    """Keeps the events that it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.events: list[dict[str, Any]] = []


class Answers(BaseHTTPRequestHandler):
    server: Catalog

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/api/v1/lineage":
            self.server.events.append(json.loads(body))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    with Catalog() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
        yield server
        server.shutdown()


def run_it(toy: Any, *overrides: str) -> str | None:
    """Run the toy with events alone; what the tracker complains of."""
    tracker = OpenLineageTracker(toy.root / ".posttrain")
    with open_session(toy.root, overrides) as session, session.workspace.locked("test"):
        try:
            session.run(
                session.planner.plan(),
                runner=runner_of(local=True, slots=1),
                tracker=tracker,
                display=Display(),
                command="test",
            )
        finally:
            complaint = tracker.close()
    return complaint


@pytest.mark.slow
def test_what_is_sent_live_is_what_the_export_says(toy: Any, catalog: Catalog) -> None:
    state = toy.root / ".posttrain"
    assert run_it(toy) is None
    kinds = [(event["job"]["name"], event["eventType"]) for event in catalog.events]
    assert kinds == [
        (stage, kind) for stage in ("first", "second", "third") for kind in ("START", "COMPLETE")
    ]
    with open_ledger(state / "ledger.db") as ledger:
        last = max(ledger.every_stage_run(), key=lambda each: each.started)
        node = find_node(ledger, last.outputs[0].digest, root=toy.root, cwd=toy.root)
        exported = FORMATS["openlineage"](View(queries.up(ledger, node), "up", ledger, toy.root))
    assert catalog.events == [json.loads(line) for line in exported.splitlines()]
    (made,) = catalog.events[1]["outputs"]
    assert made["namespace"] == "file"
    assert (last.mlflow_run_id, Path(made["name"]).is_relative_to(toy.root)) == (None, True)


@pytest.mark.slow
def test_a_stage_that_fails_is_said_to_have_failed(toy: Any, catalog: Catalog) -> None:
    with pytest.raises(StageFailed):
        run_it(toy, "second.mood=fail")
    kinds = [(event["job"]["name"], event["eventType"]) for event in catalog.events]
    assert kinds[2:] == [("second", "START"), ("second", "FAIL")]
    said = catalog.events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert "told to fail" in said


@pytest.mark.slow
def test_a_catalog_that_is_not_there_is_noted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    from posttrain.views.tracking.base import Started

    tracker = OpenLineageTracker(tmp_path / ".posttrain")
    run = tracker.start(run_started(RUN))
    for _ in range(2):
        tracker.start(Started("sft", run, record=STAGE))
    tracker.finish(run, run_finished(replace(RUN, status="failed", ended=1003.0)))
    said = str(tracker.close())
    assert said.startswith("OpenLineage tracking stopped: ")
    assert "lineage up" in said
    assert said.count("stopped") == 1


def test_a_failure_has_its_error_its_parameters_and_its_store() -> None:
    around = Surroundings(RUN, Path("/home/me/sums"))
    begun, ended = start_event(STAGE, around), end_event(STAGE, around)
    assert (begun["eventType"], ended["eventType"]) == ("START", "FAIL")
    assert ended["run"]["facets"]["errorMessage"]["message"] == "out of memory"
    assert "errorMessage" not in begun["run"]["facets"]
    parameters = begun["run"]["facets"]["executionParameters"]["parameters"]
    assert [(each["key"], each["value"]) for each in parameters] == [
        ("epochs", "2"),
        ("optimizer", '"muon"'),
    ]
    (read,) = begun["inputs"]
    assert (read["namespace"], read["name"]) == ("file", "/home/me/sums/data/a/t.parquet")
    stopped = end_event(replace(STAGE, status="stopped"), around)
    assert stopped["eventType"] == "ABORT"
    remote = replace(STAGE, inputs=(replace(TABLE, path="s3://key:secret@bucket/t.parquet"),))
    (read,) = start_event(remote, around)["inputs"]
    assert (read["namespace"], read["name"]) == ("s3://bucket", "t.parquet")


def test_a_table_that_is_there_has_its_columns(tmp_path: Path) -> None:
    table = tmp_path / "no suffix, as in a cache"
    pl.DataFrame({"id": ["a"], "ids": [[1]]}).write_parquet(table)
    (read,) = start_event(STAGE, Surroundings(RUN, tmp_path, find=lambda _: table))["inputs"]
    assert read["facets"]["schema"]["fields"] == [
        {"name": "id", "type": "String"},
        {"name": "ids", "type": "List(Int64)"},
    ]
    table.write_text("no table")
    (read,) = start_event(STAGE, Surroundings(RUN, tmp_path, find=lambda _: table))["inputs"]
    assert "schema" not in read["facets"]


def test_events_are_what_openlineages_own_classes_take() -> None:
    """The classes are made from the published schemas, fields and their names among them."""
    from openlineage.client import event_v2, facet_v2

    ended = end_event(STAGE, Surroundings(RUN, Path("/sums")))
    facets = ended["run"]["facets"]
    known = {
        "executionParameters": facet_v2.execution_parameters_run.ExecutionParametersRunFacet,
        "errorMessage": facet_v2.error_message_run.ErrorMessageRunFacet,
        "parent": facet_v2.parent_run.ParentRunFacet,
    }
    assert set(facets) == set(known)
    for name, kind in known.items():
        assert facets[name]["_schemaURL"] == kind._get_schema()
        assert set(facets[name]) - {"_producer", "_schemaURL"} <= {
            each.name for each in attr.fields(kind)
        }
    made = event_v2.RunEvent(
        eventTime=ended["eventTime"],
        producer=ended["producer"],
        run=event_v2.Run(runId=ended["run"]["runId"]),
        job=event_v2.Job(namespace=ended["job"]["namespace"], name=ended["job"]["name"]),
        eventType=event_v2.RunState(ended["eventType"]),
    )
    assert ended["schemaURL"] == made._get_schema()


def test_it_is_open_where_the_environment_names_a_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTTRAIN_TRACKING", "off")
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    assert not isinstance(open_tracker(tmp_path), OpenLineageTracker)
