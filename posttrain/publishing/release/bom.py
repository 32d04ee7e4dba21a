"""The bill of materials: the model, its data sets and models before it, and its packages."""

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from posttrain.provenance.ledger import ArtifactRecord
from posttrain.publishing.release.chain import Chain
from posttrain.publishing.release.contents import pretty
from posttrain.publishing.release.inputs import OutsideInput
from posttrain.publishing.release.licenses import UNKNOWN
from posttrain.publishing.release.names import Tag
from posttrain.stage.artifact_kinds import kind_named

_DIGESTS = ("files_sha256", "archive_sha256", "commit")


def bill_of_materials(
    tag: Tag,
    chain: Chain,
    inputs: Sequence[OutsideInput],
    packages: Mapping[str, Any],
    *,
    metrics: Mapping[str, Mapping[str, float]],
) -> bytes:
    """CycloneDX 1.6 JSON; equal chains give equal bytes."""
    policy = chain.policy.digest
    root = _component(
        tag.name,
        ComponentType.MACHINE_LEARNING_MODEL,
        f"release:{tag}",
        version=str(tag.version),
        digest=policy,
    )
    inside = [part for parts in chain.parts.values() for part in parts]
    components = {_ref(record): _artifact(record) for record in (*chain.artifacts(), *inside)}
    outside = {
        each: _component(
            each.name,
            ComponentType.DATA,
            f"input:{each.name}",
            description=each.origin,
            digest=each.digest,
            license=each.license,
        )
        for each in inputs
    }
    libraries = [_package(name, packages[name]) for name in sorted(packages)]
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{tag}:{policy}"))
    bom.metadata.component = root
    bom.components.update([*components.values(), *outside.values(), *libraries])
    bom.register_dependency(root, [components[_ref(chain.policy)], *libraries])
    for run in chain.stages:
        read = [component for each, component in outside.items() if each.stage == run.stage]
        sources = {_ref(record) for record in run.inputs}
        for record in run.outputs:
            others = [components[key] for key in sources - {_ref(record)}]
            held = [components[_ref(part)] for part in chain.parts.get(record.digest, ())]
            bom.register_dependency(components[_ref(record)], [*others, *read, *held])
    body = json.loads(make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string())
    # The moment of writing would make two equal releases differ.
    body["metadata"].pop("timestamp", None)
    body["metadata"]["component"]["modelCard"] = _model_card(chain, metrics)
    return pretty(body)


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


def _artifact(record: ArtifactRecord) -> Component:
    is_model = kind_named(record.type).is_directory
    facts = {"type": str(record.type), "bytes": str(record.size)}
    if record.rows is not None:
        facts["rows"] = str(record.rows)
    if record.producer:
        facts["producer"] = record.producer
    return _component(
        record.path if record.producer else record.path.rpartition("/")[2],
        ComponentType.MACHINE_LEARNING_MODEL if is_model else ComponentType.DATA,
        _ref(record),
        version=record.digest[:12],
        digest=record.digest,
        facts=facts,
    )


def _package(name: str, locked: Mapping[str, Any]) -> Component:
    version = str(locked["version"])
    return _component(
        name,
        ComponentType.LIBRARY,
        f"pypi:{name}",
        version=version,
        purl=PackageURL("pypi", None, name, version),
        license=str(locked["license"]),
        # No digest of the wheel, so it does not stand among the component's hashes.
        facts={key: str(locked[key]) for key in _DIGESTS if key in locked},
    )


def _component(
    name: str,
    kind: ComponentType,
    ref: str,
    *,
    digest: str | None = None,
    license: str = UNKNOWN,
    facts: Mapping[str, str] | None = None,
    **more: Any,
) -> Component:
    """A component; its license as SPDX has it, or else in its own words."""
    named = LicenseFactory().make_from_string(license) if license != UNKNOWN else None
    return Component(
        name=name,
        type=kind,
        bom_ref=ref,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)] if digest else [],
        licenses=[named] if named else [],
        properties=[
            Property(name=f"posttrain:{key}", value=value) for key, value in (facts or {}).items()
        ],
        **more,
    )
