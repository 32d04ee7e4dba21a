"""Tell a verifier by what it does: the digest of all first-party code that its scores hang on."""

from collections.abc import Iterable

from posttrain.provenance.code import CodeReader, version
from posttrain.provenance.ledger import Ledger
from posttrain.stage.artifact_kinds import ArtifactKind
from posttrain.stage.hashing import ArtifactDigest, sha256_of, sorted_json

VERIFIES = "posttrain.learning.rewards.components.verifier:verifier_of"
"""What reaches this code scores answers by verifiers that rows name, not the recipe."""

# Every table's schema is written in it; no verdict is computed with it.
_INCIDENTAL = frozenset({"polars"})


def verifier_digest(reader: CodeReader, name: str) -> ArtifactDigest:
    """SHA-256 over a verifier's name, its code and the packages that its code imports.

    Args:
        reader: The project's code.
        name: A kind of verifier; `kind/...` says with which parameters, and counts whole.

    """
    closure = reader.closure(verifier_entry(name) or VERIFIES)
    packages = {each: version(each) for each in sorted(closure.packages - _INCIDENTAL)}
    return ArtifactDigest(sha256_of(sorted_json([name, closure.digest, packages])))


def verifier_entry(name: str) -> str:
    """Return `module:class` of a verifier; empty where no such kind is offered now."""
    from posttrain.learning.rewards.verifiers.registry import VERIFIERS

    try:
        part = VERIFIERS.find(name.partition("/")[0])
    except ValueError:
        return ""
    return f"{part.__module__}:{part.__name__}"


def verifier_entries(ledger: Ledger, tables: Iterable[str] | None) -> list[str]:
    """Return `module:class` of the verifiers that tables of problems name, as the ledger knows.

    Args:
        ledger: Holds the verifiers of every table that a stage made.
        tables: Digests of the tables. Where one is not known, or None is given, every verifier
            that ships counts.

    """
    from posttrain.learning.rewards.verifiers.registry import VERIFIERS

    digests = list(tables or ())
    known = ledger.compositions.parts_of(digests) if digests else {}
    if tables is None or any(digest not in known for digest in digests):
        names = set(VERIFIERS.parts)
    else:
        parts = [part for each in known.values() for part in each]
        names = {p.path.partition(":")[2] for p in parts if p.type == ArtifactKind.VERIFIER}
    return sorted({entry for name in names if (entry := verifier_entry(name))})
