"""DSSE envelopes, one per line: signed in the in-toto payload type, read back in one spelling."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from posttrain.publishing.release.canonical import canonical

if TYPE_CHECKING:
    from securesystemslib.signer import Key, Signer

PAYLOAD_TYPE = "application/vnd.in-toto+json"


class BadEnvelope(Exception):
    """A line that is no envelope, or that the key did not sign."""


def sign(statement: Mapping[str, Any], signer: "Signer") -> bytes:
    """One line: the envelope with the statement's canonical bytes and one signature."""
    from securesystemslib.dsse import Envelope

    envelope = Envelope(canonical(statement), PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return canonical(envelope.to_dict())


def open_envelope(line: bytes, key: "Key") -> tuple[dict[str, Any], bytes]:
    """The statement in a line and its signed bytes, after the signature held.

    A line that is spelled in another way than `sign` spells it is refused: then every byte of the
    file counts, not only those that the signature covers.
    """
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    try:
        envelope = Envelope.from_dict(json.loads(line))
    # The reference library lets whatever a damaged line provokes through.
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadEnvelope(f"it is no DSSE envelope ({type(error).__name__})") from None
    if envelope.payload_type != PAYLOAD_TYPE:
        raise BadEnvelope(f"its payload type is '{envelope.payload_type}', not '{PAYLOAD_TYPE}'")
    if key.keyid not in envelope.signatures:
        raise BadEnvelope(f"it is not signed with the given key ({key.keyid[:12]})")
    try:
        envelope.verify([key], 1)
    except VerificationError:
        raise BadEnvelope("its signature does not fit its bytes") from None
    if canonical(envelope.to_dict()) != line:
        raise BadEnvelope("bytes around its signed payload were altered")
    statement = json.loads(envelope.payload)
    if not isinstance(statement, dict) or canonical(statement) != envelope.payload:
        raise BadEnvelope("its payload is not in canonical form")
    return statement, envelope.payload
