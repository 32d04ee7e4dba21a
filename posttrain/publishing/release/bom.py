"""The bill of materials: the model, its data sets and models before it, and its packages."""

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.provenance.ledger import ArtifactRecord
from posttrain.publishing.release.chain import Chain
from posttrain.publishing.release.inputs import OutsideInput
from posttrain.publishing.release.licences import UNKNOWN
from posttrain.stage.artifact_kinds import kind_named

_DIGESTS = ("files_sha256", "archive_sha256", "commit")


def bill_of_materials(
    name: str,
    version: str,
    chain: Chain,
    inputs: Sequence[OutsideInput],
    packages: Mapping[str, Any],
    *,
    metrics: Mapping[str, Mapping[str, float]],
) -> bytes:
    """CycloneDX 1.6 JSON; equal chains give equal bytes."""
    from cyclonedx.model.bom import Bom
    from cyclonedx.output import make_outputter
    from cyclonedx.schema import OutputFormat, SchemaVersion

    inside = [part for parts in chain.parts.values() for part in parts]
    components = {_ref(record): _artifact(record) for record in (*chain.artifacts(), *inside)}
    root = _root(name, version, chain)
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{name}@{version}:{chain.policy.digest}")
    )
    bom.metadata.component = root
    outside = {f"input:{each.name}": _outside(each) for each in inputs}
    libraries = {each: _package(each, packages[each]) for each in sorted(packages)}
    for component in (*components.values(), *outside.values(), *libraries.values()):
        bom.components.add(component)
    bom.register_dependency(root, [components[_ref(chain.policy)], *libraries.values()])
    for run in chain.stages:
        sources = {_ref(record): components[_ref(record)] for record in run.inputs}
        read = [
            outside[key]
            for each in inputs
            if (key := f"input:{each.name}") and each.stage == run.stage
        ]
        for record in run.outputs:
            others = [part for key, part in sources.items() if key != _ref(record)]
            held = [components[_ref(part)] for part in chain.parts.get(record.digest, ())]
            bom.register_dependency(components[_ref(record)], [*others, *read, *held])
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string()
    body = json.loads(text)
    # The moment of writing would make two equal releases differ.
    body["metadata"].pop("timestamp", None)
    body["metadata"]["component"]["modelCard"] = _model_card(chain, metrics)
    return (json.dumps(body, indent=1, sort_keys=True) + "\n").encode()


def _model_card(chain: Chain, metrics: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """The part of the standard that the reference library does not write yet."""
    return {
        "modelParameters": {
            "task": "text-generation",
            "datasets": [{"ref": _ref(record)} for record in chain.trained_on()],
        },
        "quantitativeAnalysis": {
            "performanceMetrics": [
                {
                    "type": name,
                    "value": f"{value['value']:.6f}",
                    "confidenceInterval": {
                        "lowerBound": f"{value['low']:.6f}",
                        "upperBound": f"{value['high']:.6f}",
                    },
                }
                for name, value in metrics.items()
            ]
        },
    }


def _ref(record: ArtifactRecord) -> str:
    return f"{record.type}:{record.digest}"


def _artifact(record: ArtifactRecord) -> Any:
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.component import Component, ComponentType

    is_model = kind_named(record.type).is_directory
    kind = ComponentType.MACHINE_LEARNING_MODEL if is_model else ComponentType.DATA
    facts = {"posttrain:type": str(record.type), "posttrain:bytes": str(record.size)}
    if record.rows is not None:
        facts["posttrain:rows"] = str(record.rows)
    if record.producer:
        facts["posttrain:producer"] = record.producer
    return Component(
        name=record.path if record.producer else record.path.rpartition("/")[2],
        type=kind,
        bom_ref=_ref(record),
        version=record.digest[:12],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=record.digest)],
        properties=[Property(name=key, value=value) for key, value in facts.items()],
    )


def _root(name: str, version: str, chain: Chain) -> Any:
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType

    return Component(
        name=name,
        version=version,
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref=f"release:{name}@{version}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=chain.policy.digest)],
    )


def _licences(stated: str) -> list[Any]:
    """An SPDX identifier, an expression, or the words as they are; nothing where it is unknown."""
    from cyclonedx.contrib.license.factories import LicenseFactory

    return [LicenseFactory().make_from_string(stated)] if stated != UNKNOWN else []


def _outside(each: OutsideInput) -> Any:
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType

    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=each.digest)] if each.digest else []
    return Component(
        name=each.name,
        type=ComponentType.DATA,
        bom_ref=f"input:{each.name}",
        description=each.origin,
        hashes=hashes,
        licenses=_licences(each.licence),
    )


def _package(name: str, locked: Mapping[str, Any]) -> Any:
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    version = str(locked["version"])
    digests = {key: str(locked[key]) for key in _DIGESTS if key in locked}
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=f"pypi:{name}",
        purl=PackageURL("pypi", None, name, version),
        licenses=_licences(str(locked["licence"])),
        # No digest of the wheel, so it does not stand among the component's hashes.
        properties=[Property(name=f"posttrain:{key}", value=digests[key]) for key in digests],
    )
