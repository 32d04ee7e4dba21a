"""OpenLineage run events, one JSON object per line, as its file transport writes them.

A START and an end for every stage run, after the specification 2-0-2: COMPLETE, FAIL or ABORT. They
are the same whether they are sent while a run goes on or asked for later. Datasets are named by the
store that they lie in, and their bytes told apart by the `version` facet, which holds the digest.
"""

import json
import os.path
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from posttrain.provenance.ledger import ArtifactRecord, Run, StageRun
from posttrain.provenance.ledger.annotations import RECIPE_FOLDER
from posttrain.provenance.ledger.location import recipe_folder
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.provenance.lineage.render.view import View

EventKind = Literal["START", "COMPLETE", "FAIL", "ABORT"]
PortRecords = Mapping[str, Sequence[ArtifactRecord]]

PRODUCER = "urn:posttrain"
_SPEC = "https://openlineage.io/spec"
_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_PARTS = f"{PRODUCER}:facets:1-0-0:PartsDatasetFacet"
_FACETS = {
    "version": "1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet",
    "datasetType": "1-0-1/DatasetTypeDatasetFacet.json#/$defs/DatasetTypeDatasetFacet",
    "outputStatistics": (
        "1-0-2/OutputStatisticsOutputDatasetFacet.json#/$defs/OutputStatisticsOutputDatasetFacet"
    ),
    "inputStatistics": (
        "1-0-0/InputStatisticsInputDatasetFacet.json#/$defs/InputStatisticsInputDatasetFacet"
    ),
    "schema": "1-2-0/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet",
    "executionParameters": (
        "1-0-0/ExecutionParametersRunFacet.json#/$defs/ExecutionParametersRunFacet"
    ),
    "errorMessage": "1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet",
    "parent": "1-2-0/ParentRunFacet.json#/$defs/ParentRunFacet",
    "sourceCodeLocation": (
        "1-1-0/SourceCodeLocationJobFacet.json#/$defs/SourceCodeLocationJobFacet"
    ),
    "jobType": "2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet",
}


@dataclass(frozen=True)
class Surroundings:
    """What events say beside the records.

    Args:
        run: Of the stage; None where the ledger has lost it.
        folder: The recipe's, absolute: paths of artifacts are recorded from it.
        parts: What artifacts carry inside, by their digest.
        find: Where an artifact lies, so that its columns can be read; None where it does not.

    """

    run: Run | None
    folder: Path
    parts: PortRecords = field(default_factory=dict)
    find: Callable[[ArtifactRecord], Path | None] = lambda _record: None


def render(view: View) -> str:
    """Both events of every stage run in the graph, in the order of time."""
    wanted = [node.id for node in view.graph.nodes.values() if node.kind == "stage"]
    found = (view.ledger.stage_run(each) for each in wanted)
    stage_runs = [each for each in found if each is not None]
    digests = {record.digest for each in stage_runs for record in (*each.inputs, *each.outputs)}
    parts = view.ledger.compositions.parts_of(sorted(digests))
    folders = view.ledger.annotations.noted(RECIPE_FOLDER)
    finder = Finder(view.root)
    timed: list[tuple[str, int, str]] = []
    for order, each in enumerate(sorted(stage_runs, key=lambda each: each.started)):
        run = view.ledger.run(each.run_id)
        folder = folders.get(each.run_id) or recipe_folder(view.root, run.recipe if run else "")
        around = Surroundings(
            run,
            view.root / folder,
            parts,
            lambda record: finder.find(record.path, record.digest, record.md5),
        )
        for made in (start_event(each, around), end_event(each, around)):
            timed.append((made["eventTime"], order, json.dumps(made, sort_keys=True) + "\n"))
    return "".join(line for *_, line in sorted(timed, key=lambda event: event[:2]))


def start_event(stage_run: StageRun, around: Surroundings) -> dict[str, Any]:
    """The START of a stage run: what it reads; what it makes is not known yet.

    Args:
        stage_run: Its record, as far as it is known.
        around: What else is said.

    Returns:
        The event, ready for JSON.

    """
    return _event("START", stage_run, around, stage_run.started)


def end_event(stage_run: StageRun, around: Surroundings) -> dict[str, Any]:
    """The end of a stage run: COMPLETE, FAIL with its error, or ABORT where somebody stopped it.

    Args:
        stage_run: Its record.
        around: What else is said.

    Returns:
        The event, ready for JSON.

    """
    kinds: Mapping[str, EventKind] = {"failed": "FAIL", "stopped": "ABORT"}
    # Never before its START, even where the clock was set back in between.
    moment = max(stage_run.started, stage_run.ended)
    made = _event(kinds.get(stage_run.status, "COMPLETE"), stage_run, around, moment)
    made["outputs"] = [_dataset(record, "output", around) for record in stage_run.outputs]
    if stage_run.error:
        made["run"]["facets"]["errorMessage"] = _facet(
            "errorMessage", message=stage_run.error, programmingLanguage="Python"
        )
    return made


def _event(
    kind: EventKind, stage_run: StageRun, around: Surroundings, moment: float
) -> dict[str, Any]:
    run = around.run
    recipe = run.recipe if run is not None else "unknown"
    job = _facet("jobType", processingType="BATCH", integration="POSTTRAIN", jobType="STAGE")
    job_facets = {"jobType": job}
    if run is not None and run.git_commit:
        job_facets["sourceCodeLocation"] = _facet(
            "sourceCodeLocation", type="git", url=f"urn:git:{run.git_commit}"
        )
    facets = {
        "parent": _facet(
            "parent",
            run={"runId": as_uuid(stage_run.run_id)},
            job={"namespace": recipe, "name": recipe},
        )
    }
    if params := stage_run.components.get("params"):
        listed = [{"key": key, "name": key, "value": text} for key, text in sorted(params.items())]
        facets["executionParameters"] = _facet("executionParameters", parameters=listed)
    return {
        "eventType": kind,
        "eventTime": datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds"),
        "producer": PRODUCER,
        "schemaURL": _EVENT,
        "run": {"runId": as_uuid(stage_run.id), "facets": facets},
        "job": {"namespace": recipe, "name": stage_run.stage, "facets": job_facets},
        "inputs": [_dataset(record, "input", around) for record in stage_run.inputs],
        "outputs": [],
    }


def _dataset(record: ArtifactRecord, side: str, around: Surroundings) -> dict[str, Any]:
    namespace, name = dataset_place(record.path, around.folder)
    counted = {"rowCount": record.rows} if record.rows is not None else {}
    statistics = _facet(f"{side}Statistics", size=record.size, **counted)
    facets = {
        "version": _facet("version", datasetVersion=f"sha256:{record.digest}"),
        "datasetType": _facet("datasetType", datasetType=record.type.upper()),
    }
    if columns := _columns(around.find(record)):
        facets["schema"] = _facet("schema", fields=columns)
    if record.digest in around.parts:
        facets["posttrain_parts"] = _parts(around.parts[record.digest])
    return {
        "namespace": namespace,
        "name": name,
        "facets": facets,
        f"{side}Facets": {f"{side}Statistics": statistics},
    }


def dataset_place(path: str, folder: Path) -> tuple[str, str]:
    """The namespace and name of a dataset, as the specification names stores.

    >>> dataset_place("data/rl/policy", Path("/home/me/sums"))
    ('file', '/home/me/sums/data/rl/policy')
    >>> dataset_place("s3://bucket/tables/a.parquet", Path("/home/me/sums"))
    ('s3://bucket', 'tables/a.parquet')

    Args:
        path: As it was recorded: from the recipe's folder, absolute, or a URL.
        folder: The recipe's.

    Returns:
        `file` and an absolute path, or the store of a URL and the name in it.

    """
    if "://" in path:
        store = urlsplit(path)
        return f"{store.scheme}://{store.netloc.rpartition('@')[2]}", store.path.lstrip("/")
    return "file", os.path.normpath(folder / path)


def _columns(path: Path | None) -> list[dict[str, str]]:
    """Names and types of a table's columns, as polars says them; nothing of what is no table."""
    if path is None or path.is_dir() or not _is_parquet(path):
        return []
    import polars as pl

    schema = pl.read_parquet_schema(path)
    return [{"name": name, "type": str(kind)} for name, kind in schema.items()]


def _is_parquet(path: Path) -> bool:
    """Whether a file begins as parquet does: in a cache it has no suffix."""
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


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
