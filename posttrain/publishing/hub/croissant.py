"""Croissant 1.1: a data set for machines, in JSON-LD, derived as PROV-O says it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.provenance.ledger import ArtifactRecord, StageRun
from posttrain.publishing.hub.origins import hub_data

# Of the standard's vocabulary; its context names all of them, used or not.
_WORDS = """
arrayShape citeAs column containedIn equivalentProperty extract field fileObject fileProperty
fileSet format includes isArray isLiveDataset jsonPath key md5 parentField path recordSet
references regex repeated replace samplingRate separator source subField transform
"""
_CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    **{word: f"cr:{word}" for word in _WORDS.split()},
}
_TYPES = {"Int": "sc:Integer", "UInt": "sc:Integer", "Float": "sc:Float", "Boolean": "sc:Boolean"}


@dataclass(frozen=True)
class PushedFile:
    """A file of parquet in a data set."""

    name: str
    """Its path in the repository."""
    config: str
    split: str
    sha256: str
    size: int
    """In bytes."""
    rows: int
    columns: Mapping[str, str]
    """Column -> type, as polars names it."""
    stage: str
    """What made it."""


def croissant(
    name: str, files: Sequence[PushedFile], behind: Sequence[StageRun], *, license: str | None
) -> dict[str, Any]:
    """Describe a data set and what it is derived from.

    Args:
        name: Of the data set.
        files: That it has.
        behind: The stage runs that made them, in the order of the DAG.
        license: The hub's identifier, where there is one.

    Returns:
        JSON-LD. Each stage is a `prov:Activity` with what it used and made, by digest.

    """
    described: dict[str, Any] = {
        "@context": dict(_CONTEXT),
        "@type": "sc:Dataset",
        "name": name,
        "description": f"Tables of the pipeline stages {', '.join(run.stage for run in behind)}.",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "distribution": [_distribution(each) for each in files],
        "recordSet": [_record_set(each) for each in files],
        "prov:wasDerivedFrom": [
            {"@id": f"https://huggingface.co/datasets/{each.name}", "sc:version": each.revision}
            for each in hub_data(behind)
        ],
        "prov:wasGeneratedBy": [_activity(run) for run in behind],
    }
    if license is not None:
        described["license"] = license
    return described


def _distribution(file: PushedFile) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": file.name,
        "name": file.name,
        "contentUrl": file.name,
        "encodingFormat": "application/x-parquet",
        "sha256": file.sha256,
        "contentSize": f"{file.size} B",
    }


def _record_set(file: PushedFile) -> dict[str, Any]:
    name = f"{file.config}_{file.split}"
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{column}",
                "name": column,
                "dataType": _type_of(kind),
                "source": {"fileObject": {"@id": file.name}, "extract": {"column": column}},
            }
            for column, kind in file.columns.items()
            # The standard has no word for a table within a cell.
            if not kind.startswith(("Struct", "List", "Array"))
        ],
    }


def _activity(run: StageRun) -> dict[str, Any]:
    return {
        "@type": "prov:Activity",
        "@id": f"urn:posttrain:key:{run.key}",
        "name": run.stage,
        "prov:used": [_entity(each) for each in run.inputs],
        "prov:generated": [_entity(each) for each in run.outputs],
    }


def _entity(record: ArtifactRecord) -> dict[str, Any]:
    return {
        "@type": "prov:Entity",
        "@id": f"urn:sha256:{record.digest}",
        "name": record.role,
    }


def _type_of(kind: str) -> str:
    return next((said for begin, said in _TYPES.items() if kind.startswith(begin)), "sc:Text")
