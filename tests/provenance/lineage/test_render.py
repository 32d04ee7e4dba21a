"""Every format says the same graph; nothing in a name can break out of its place."""

import json
import re
from dataclasses import replace

import click
import pytest

from posttrain.provenance.ledger import ArtifactRecord, Composition
from posttrain.provenance.lineage import queries
from posttrain.provenance.lineage.graph import Edge, Graph, Node
from posttrain.provenance.lineage.names import find_node
from posttrain.provenance.lineage.render import FORMATS, View
from posttrain.provenance.lineage.render.openlineage import as_uuid
from posttrain.provenance.lineage.render.view import first_metrics

HOSTILE = '</script><b>"quote" \\ back # hash | pipe [box] {brace}\nline %%DATA%%'


@pytest.fixture
def view(project):
    def build(name, direction="up"):
        node = find_node(project.ledger, name, root=project.root, cwd=project.root)
        question = queries.up if direction == "up" else queries.down
        return View(question(project.ledger, node), direction, project.ledger, project.root)

    return build


@pytest.fixture
def hostile(view):
    """A graph whose names try everything."""
    known = {"digest": "ab" * 32, "bytes": 1, "rows": 1}
    node = Node("a", "artifact", "completions", HOSTILE, known)
    facts = {"run": HOSTILE, "seconds": 1.0, "log": "", "status": "succeeded"}
    stage = Node("s", "stage", "t", HOSTILE, facts, {HOSTILE: float("inf")})
    bad = replace(node, id="b", recalled=HOSTILE)
    edges = (Edge("a", "s", HOSTILE), Edge("s", "b", HOSTILE))
    graph = Graph("b", {"b": bad, "s": stage, "a": node}, edges, omitted=7)
    return replace(view("v1"), graph=graph)


def test_tree_shows_each_node_once_in_full(view, project):
    text = click.unstyle(FORMATS["tree"](view("data/rl/tuned")))
    lines = text.splitlines()
    assert lines[0].startswith(f"checkpoint {project.digest('tuned')[:12]}  data/rl/tuned  19 B")
    assert lines[1] == "└── rl@first  2.0 s  reward nan"
    # problems is reached through rl and through synthesize: named twice, described once.
    described = [line for line in lines if project.digest("problems")[:12] in line]
    assert [line.endswith("(above)") for line in described] == [False, True]
    assert len(lines) == 7 + 5 + 1  # artifacts, stage runs, one repetition


def test_tree_marks_what_is_recalled_and_counts_what_is_missing(hostile):
    text = FORMATS["tree"](hostile)
    assert "RECALLED" in text
    assert text.endswith("7 more artifacts are not shown; see --limit and --depth\n")


def test_json_holds_every_fact_and_is_strict(view, project, hostile):
    body = json.loads(FORMATS["json"](view("data/rl/tuned")))
    assert body["root"] == f"checkpoint:{project.digest('tuned')}"
    by_name = {node["name"]: node for node in body["nodes"]}
    assert by_name["data/curate/kept.parquet"]["facts"]["rows"] == 3
    assert by_name["curate"]["facts"]["param threshold"] == "0.5"
    assert by_name["rl"]["metrics"] == {"reward": None}
    assert len(body["edges"]) == 12
    json.loads(FORMATS["json"](hostile), parse_constant=pytest.fail)


def test_mermaid_has_a_line_per_node_and_edge(view, hostile):
    text = FORMATS["mermaid"](view("data/rl/tuned"))
    lines = text.splitlines()
    assert lines[0] == "flowchart LR"
    assert sum(" -->|" in line for line in lines) == 12
    assert '  n0{{"checkpoint ' in text
    body = FORMATS["mermaid"](hostile)
    assert body.count('"') % 2 == 0
    assert "<b>" not in body
    assert "class n0 recalled" in body


def test_openlineage_has_a_start_and_a_complete_event_for_each_stage_run(view, project):
    lines = FORMATS["openlineage"](view("data/rl/tuned")).splitlines()
    events = [json.loads(line) for line in lines]
    kinds = [(event["job"]["name"], event["eventType"]) for event in events]
    stages = ["problems", "synthesize", "curate", "sft", "rl"]
    assert sorted(kinds) == sorted((s, kind) for s in stages for kind in ("START", "COMPLETE"))
    assert all(kinds.index((s, "START")) < kinds.index((s, "COMPLETE")) for s in stages)
    sft = events[kinds.index(("sft", "COMPLETE"))]
    assert sft["eventTime"] == "1970-01-01T00:00:40.000000+00:00"
    assert sft["job"]["namespace"] == "gsm8k"
    names = [dataset["name"] for dataset in sft["inputs"]]
    assert names == [
        str(project.root / "data/curate/kept.parquet"),
        str(project.root / "data/base"),
    ]
    kept = sft["inputs"][0]
    version = kept["facets"]["version"]
    assert version["datasetVersion"] == f"sha256:{project.digest('kept')}"
    assert kept["inputFacets"]["inputStatistics"]["rowCount"] == 3
    assert sft["run"]["facets"]["parent"]["job"]["name"] == "gsm8k"


def test_openlineage_says_what_a_model_carries_inside(view, project):
    tuned = project.records["tuned"]
    template = ArtifactRecord("template", "template", "data/rl/tuned#template", "ab" * 32, 7)
    project.ledger.compositions.add(Composition(tuned, (template,)))
    facets = [
        dataset["facets"]
        for line in FORMATS["openlineage"](view("data/rl/tuned")).splitlines()
        for dataset in json.loads(line)["outputs"]
        if dataset["name"] == str(project.root / tuned.path)
    ]
    assert [each["posttrain_parts"]["parts"] for each in facets] == [
        [{"type": "template", "name": template.path, "version": f"sha256:{'ab' * 32}"}]
    ]


def test_openlineage_required_fields_of_the_specification(view):
    for line in FORMATS["openlineage"](view("v1")).splitlines():
        event = json.loads(line)
        assert {"eventTime", "producer", "schemaURL", "run", "job"} <= set(event)
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", event["run"]["runId"])
        facets = [*event["run"]["facets"].values(), *event["job"]["facets"].values()]
        for dataset in (*event["inputs"], *event["outputs"]):
            assert dataset["namespace"]
            assert dataset["name"]
            facets += dataset["facets"].values()
        assert all({"_producer", "_schemaURL"} <= set(facet) for facet in facets)


def test_ids_become_uuids_and_stay_the_same():
    assert as_uuid("0123456789abcdef0123456789abcdef") == "01234567-89ab-cdef-0123-456789abcdef"
    assert as_uuid("run-1") == as_uuid("run-1") != as_uuid("run-2")


def test_a_stage_is_known_by_its_telling_metrics_written_as_people_write_them():
    metrics = {"rl/entropy": 0.0569, "rl/num_rollouts": 51200.0, "rl/reward": 0.73125}
    assert first_metrics(metrics, 2) == ["rl/reward 0.731", "rl/entropy 0.057"]
    assert first_metrics(metrics)[2] == "rl/num_rollouts 51,200"
