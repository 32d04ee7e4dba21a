"""OpenLineage run events, one JSON object per line, as its file transport writes them.

A START and a COMPLETE event for every stage run, after the specification 2-0-2. Datasets are named
by path; their bytes are told apart by the `version` facet, which holds the digest.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from posttrain.provenance.ledger import ArtifactRecord, Run, StageRun
from posttrain.provenance.lineage.render.view import View

PortRecords = Mapping[str, Sequence[ArtifactRecord]]

PRODUCER = "urn:posttrain"
_SPEC = "https://openlineage.io/spec"
_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_PARTS = f"{PRODUCER}:facets:1-0-0:PartsDatasetFacet"
_FACETS = {
    "version": "1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet",
    "datasetType": "1-0-0/DatasetTypeDatasetFacet.json#/$defs/DatasetTypeDatasetFacet",
    "outputStatistics": (
        "1-0-2/OutputStatisticsOutputDatasetFacet.json#/$defs/OutputStatisticsOutputDatasetFacet"
    ),
    "inputStatistics": (
        "1-0-0/InputStatisticsInputDatasetFacet.json#/$defs/InputStatisticsInputDatasetFacet"
    ),
    "parent": "1-2-0/ParentRunFacet.json#/$defs/ParentRunFacet",
    "sourceCodeLocation": (
        "1-1-0/SourceCodeLocationJobFacet.json#/$defs/SourceCodeLocationJobFacet"
    ),
    "jobType": "2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet",
}


def render(view: View) -> str:
    """START and COMPLETE of every stage run in the graph, in the order of time."""
    wanted = [node.id for node in view.graph.nodes.values() if node.kind == "stage"]
    found = (view.ledger.stage_run(each) for each in wanted)
    stage_runs = [each for each in found if each is not None]
    runs = {each.run_id: view.ledger.run(each.run_id) for each in stage_runs}
    digests = {record.digest for each in stage_runs for record in (*each.inputs, *each.outputs)}
    parts = view.ledger.compositions.parts_of(sorted(digests))
    timed: list[tuple[float, int, str]] = []
    for order, each in enumerate(sorted(stage_runs, key=lambda each: each.started)):
        # Never before its START, even where the clock was set back in between.
        moments = {"START": each.started, "COMPLETE": max(each.started, each.ended)}
        for kind, moment in moments.items():
            event = {
                "eventType": kind,
                "eventTime": datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds"),
                **_described(each, runs[each.run_id], parts),
            }
            timed.append((moment, order, json.dumps(event, sort_keys=True) + "\n"))
    return "".join(line for *_, line in sorted(timed, key=lambda event: event[:2]))


def _described(stage_run: StageRun, run: Run | None, parts: PortRecords) -> dict[str, Any]:
    """What both events of a stage run say."""
    recipe = run.recipe if run is not None else "unknown"
    job = _facet("jobType", processingType="BATCH", integration="POSTTRAIN", jobType="STAGE")
    job_facets = {"jobType": job}
    if run is not None and run.git_commit:
        job_facets["sourceCodeLocation"] = _facet(
            "sourceCodeLocation", type="git", url=f"urn:git:{run.git_commit}"
        )
    parent = _facet(
        "parent",
        run={"runId": as_uuid(stage_run.run_id)},
        job={"namespace": recipe, "name": recipe},
    )
    return {
        "producer": PRODUCER,
        "schemaURL": _EVENT,
        "run": {"runId": as_uuid(stage_run.id), "facets": {"parent": parent}},
        "job": {"namespace": recipe, "name": stage_run.stage, "facets": job_facets},
        "inputs": [_dataset(record, recipe, "input", parts) for record in stage_run.inputs],
        "outputs": [_dataset(record, recipe, "output", parts) for record in stage_run.outputs],
    }


def _dataset(record: ArtifactRecord, recipe: str, side: str, parts: PortRecords) -> dict[str, Any]:
    counted = {"rowCount": record.rows} if record.rows is not None else {}
    statistics = _facet(f"{side}Statistics", size=record.size, **counted)
    facets = {
        "version": _facet("version", datasetVersion=f"sha256:{record.digest}"),
        "datasetType": _facet("datasetType", datasetType=record.type.upper()),
    }
    if record.digest in parts:
        facets["posttrain_parts"] = _parts(parts[record.digest])
    return {
        "namespace": recipe,
        "name": record.path,
        "facets": facets,
        f"{side}Facets": {f"{side}Statistics": statistics},
    }


def _parts(parts: Sequence[ArtifactRecord]) -> dict[str, Any]:
    """A facet of our own, named after us as the specification asks."""
    listed = [
        {"type": part.type, "name": part.path, "version": f"sha256:{part.digest}"} for part in parts
    ]
    return {"_producer": PRODUCER, "_schemaURL": _PARTS, "parts": listed}


def _facet(name: str, **values: object) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": f"{_SPEC}/facets/{_FACETS[name]}", **values}


def as_uuid(identity: str) -> str:
    """OpenLineage wants UUIDs; an id that is none gets one of its own, always the same."""
    try:
        return str(uuid.UUID(identity))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{PRODUCER}:{identity}"))
