"""In-toto statements: one per stage (SLSA provenance), one per gate (test result), one for all."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from posttrain import __version__
from posttrain.provenance.ledger import ArtifactRecord, StageRun
from posttrain.publishing.release.canonical import public_path
from posttrain.publishing.release.config import AnyGate
from posttrain.publishing.release.statistics import GateResult
from posttrain.stage.hashing import sha256_of_json

STATEMENT = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
# Ours: what the whole folder is, and which claims belong to it in which order.
RELEASE = "urn:posttrain:predicate:release:v1"
_BUILD = "urn:posttrain:build:stage:v1"
_BUILDER = "urn:posttrain:executor"


def stage_statement(run: StageRun, commit: str | None) -> dict[str, Any]:
    """A stage run: its outputs were made from its inputs, with these parameters and this code."""
    components = {name: dict(values) for name, values in run.components.items()}
    dependencies = [_descriptor(record) for record in run.inputs]
    if commit:
        dependencies.append({"name": "code", "digest": {"gitCommit": commit}})
    predicate = {
        "buildDefinition": {
            "buildType": _BUILD,
            "externalParameters": {"stage": run.stage, "task": run.task},
            "internalParameters": {"key": run.key, "components": components},
            "resolvedDependencies": dependencies,
        },
        "runDetails": {
            "builder": {"id": _BUILDER, "version": {"posttrain": __version__}},
            "metadata": {
                "invocationId": run.id,
                "startedOn": _moment(run.started),
                "finishedOn": _moment(run.ended),
            },
        },
    }
    return _statement([_descriptor(record) for record in run.outputs], PROVENANCE, predicate)


def gate_statement(gate: AnyGate, result: GateResult, policy: ArtifactRecord) -> dict[str, Any]:
    """A gate and the figures by which it passed, for exactly this policy."""
    settings = gate.model_dump(mode="json")
    configuration = {
        "name": gate.name,
        "digest": {"sha256": sha256_of_json(settings)},
        "annotations": {
            "gate": settings,
            "rule": result.rule,
            "figures": dict(result.figures),
        },
    }
    predicate = {
        "result": "PASSED" if result.passed else "FAILED",
        "configuration": [configuration],
        "passedTests" if result.passed else "failedTests": [gate.name],
    }
    return _statement([_descriptor(policy)], TEST_RESULT, predicate)


def release_statement(
    files: Mapping[str, str], claims: Sequence[str], about: Mapping[str, Any]
) -> dict[str, Any]:
    """The last claim: digests of every file, and of every claim before it, in order."""
    subjects = [{"name": name, "digest": {"sha256": files[name]}} for name in sorted(files)]
    return _statement(subjects, RELEASE, {**about, "claims": list(claims)})


def check_statement(statement: Mapping[str, Any]) -> None:
    """Raise `ValueError` at what the reference types of in-toto do not read."""
    from google.protobuf.json_format import ParseDict, ParseError
    from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
    from in_toto_attestation.predicates.test_result.v0.test_result_pb2 import TestResult
    from in_toto_attestation.v1.statement import Statement
    from in_toto_attestation.v1.statement_pb2 import Statement as Message

    try:
        Statement.copy_from_pb(ParseDict(statement, Message())).validate()
        kind = statement["predicateType"]
        if kind == PROVENANCE:
            ParseDict(statement["predicate"], Provenance())
        elif kind == TEST_RESULT:
            ParseDict(statement["predicate"], TestResult())
        elif kind != RELEASE:
            raise ValueError(f"unknown predicate type {kind}")
    except ParseError as error:
        raise ValueError(str(error).splitlines()[0]) from None


def _statement(
    subjects: Sequence[Mapping[str, Any]], kind: str, predicate: Mapping[str, Any]
) -> dict[str, Any]:
    statement = {
        "_type": STATEMENT,
        "subject": list(subjects),
        "predicateType": kind,
        "predicate": dict(predicate),
    }
    check_statement(statement)
    return statement


def _descriptor(record: ArtifactRecord) -> dict[str, Any]:
    annotations: dict[str, Any] = {
        "role": record.role,
        "type": str(record.type),
        "bytes": record.size,
    }
    if record.producer:
        annotations["producer"] = record.producer
    if record.rows is not None:
        annotations["rows"] = record.rows
    return {
        "name": public_path(record.path),
        "digest": {"sha256": record.digest},
        "annotations": annotations,
    }


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
