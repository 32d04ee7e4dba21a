"""Artifacts that a person wants kept, whatever the budget says."""

from posttrain.provenance.ledger import Ledger
from posttrain.provenance.lineage.names import Selected, digests_of
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import ArtifactDigest

_PIN = "pin"
# An annotation is never taken away, only said anew: no name means that it is pinned no more.
_NO_MORE = ""


def pinned(ledger: Ledger) -> dict[str, str]:
    """Digest of every pinned artifact -> the name under which it was pinned."""
    noted = ledger.annotations.noted(_PIN)
    return {digest: name for digest, name in noted.items() if name != _NO_MORE}


def pin(ledger: Ledger, node: Selected, name: str) -> list[ArtifactDigest]:
    """Keep an artifact, all outputs of a stage run, or all members of a release."""
    digests = digests_of(ledger, node)
    ledger.annotations.note(_PIN, dict.fromkeys(digests, name))
    return digests


def unpin(ledger: Ledger, node: Selected) -> list[ArtifactDigest]:
    """Let them go by the policy again."""
    digests = [digest for digest in digests_of(ledger, node) if digest in pinned(ledger)]
    if not digests:
        raise UserError("that node is not pinned; see posttrain gc pins")
    ledger.annotations.note(_PIN, dict.fromkeys(digests, _NO_MORE))
    return digests
