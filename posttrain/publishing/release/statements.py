"""What is signed: in-toto statements in DSSE envelopes, one per line, read back in one spelling.

One statement per stage (SLSA provenance), one per gate (test result), one for all.
"""

import base64
import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from posttrain import __version__
from posttrain.provenance.ledger import ArtifactRecord, StageRun
from posttrain.publishing.release.chain import public_path
from posttrain.publishing.release.contents import CLAIMS, Contents
from posttrain.publishing.release.gates.base import Gate, GateResult
from posttrain.stage.errors import UserError, first_line
from posttrain.stage.hashing import canonical_json, sha256_of, sha256_of_json

if TYPE_CHECKING:
    from securesystemslib.signer import Key, Signer

STATEMENT = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
# Ours: what the whole folder is, and which claims belong to it in which order.
RELEASE = "urn:posttrain:predicate:release:v1"
_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_ENVELOPE = re.compile(
    rb'\{"payload":"(?P<payload>[A-Za-z0-9+/=]*)","payloadType":"(?P<kind>[ !#-\[\]-~]*)",'
    rb'"signatures":\[\{"keyid":"(?P<keyid>[0-9a-f]*)","sig":"[A-Za-z0-9+/=]*"\}\]\}'
)
_BUILD = "urn:posttrain:build:stage:v1"
_BUILDER = "urn:posttrain:executor"


class BadEnvelope(Exception):
    """A line that is no envelope, or that the key did not sign."""


def canonical(value: object) -> bytes:
    """The bytes of a JSON value that are signed: equal values have equal bytes."""
    return canonical_json(value).encode()


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
            "internalParameters": {
                "key": run.key,
                "components": components,
                "circumstances": dict(run.circumstances),
            },
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


def gate_statement(gate: Gate, result: GateResult, policy: ArtifactRecord) -> dict[str, Any]:
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
    files: Mapping[str, tuple[str, int]], claims: Sequence[str], about: Mapping[str, Any]
) -> dict[str, Any]:
    """The last claim: digest and size of every file, and digests of the claims before, in order."""
    subjects = [
        {"name": name, "digest": {"sha256": digest}, "annotations": {"bytes": size}}
        for name, (digest, size) in sorted(files.items())
    ]
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
        raise ValueError(first_line(error)) from None


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


def sign(statement: Mapping[str, Any], signer: "Signer") -> bytes:
    """One line: the envelope with the statement's canonical bytes and one signature."""
    from securesystemslib.dsse import Envelope

    envelope = Envelope(canonical(statement), _PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return canonical(envelope.to_dict())


def open_envelope(line: bytes, key: "Key") -> tuple[dict[str, Any], bytes]:
    """The statement in a line and its signed bytes, after the signature held.

    A line that is spelled in another way than `sign` spells it is refused: then every byte of the
    file counts, not only those that the signature covers.
    """
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    # A pattern reads what nobody signed: it cannot be led into depths, as a parser can.
    spelled = _ENVELOPE.fullmatch(line)
    if spelled is None:
        raise BadEnvelope("it is no DSSE envelope with one signature, spelled as a release has it")
    kind, keyid = spelled["kind"].decode(), spelled["keyid"].decode()
    if kind != _PAYLOAD_TYPE:
        raise BadEnvelope(f"its payload type is '{kind}', not '{_PAYLOAD_TYPE}'")
    if keyid != key.keyid:
        raise BadEnvelope(f"it is not signed with the given key ({key.keyid[:12]})")
    try:
        envelope = Envelope.from_dict(json.loads(line))
        envelope.verify([key], 1)
    except (ValueError, VerificationError):
        raise BadEnvelope("its signature does not fit its bytes") from None
    if canonical(envelope.to_dict()) != line:
        raise BadEnvelope("bytes around its signed payload were altered")
    statement = json.loads(envelope.payload)
    if not isinstance(statement, dict) or canonical(statement) != envelope.payload:
        raise BadEnvelope("its payload is not in canonical form")
    return statement, envelope.payload


def last_statement(contents: Contents) -> tuple[str, dict[str, Any]]:
    """Digest and content of the statement about the whole release, its signature unchecked."""
    *_, line = contents.read(CLAIMS).splitlines() or [b""]
    try:
        spelled = _ENVELOPE.fullmatch(line)
        payload = base64.b64decode(spelled["payload"] if spelled else b"")
        statement = json.loads(payload)
        statement["predicate"], statement["subject"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(
            f"{CLAIMS}: its last claim is none about a release; posttrain release verify says more"
        ) from None
    return sha256_of(payload), statement
