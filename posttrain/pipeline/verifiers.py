"""Tell a verifier by what it does: the digest of all first-party code that its scores hang on."""

from collections.abc import Iterable

from posttrain.pipeline.slots import find_slot
from posttrain.provenance.code import CodeReader, version
from posttrain.provenance.ledger import Ledger
from posttrain.stage.artifact_kinds import ArtifactKind
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import ArtifactDigest, sha256_of, sorted_json
from posttrain.stage.slots import Part

VERIFIES = "posttrain.learning.rewards.verify:verifier_of"
"""What reaches this code scores answers by verifiers that rows name, not the recipe."""

PARTS_OF = ("extractor", "constraint")
"""Slots of the parts that a verifier has."""

_VERIFIER = "verifier"

# Every table's schema is written in it; no verdict is computed with it.
_INCIDENTAL = frozenset({"polars"})


def verifier_digest(reader: CodeReader, name: str) -> ArtifactDigest:
    """SHA-256 over a verifier's name, its code and the packages that its code imports.

    Args:
        reader: The project's code.
        name: A kind of verifier, or `slot.kind` of a part of one; `kind/...` says with which
            parameters, and counts whole.

    """
    part = verifier_part(name)
    closure = reader.closure(entry_of(part) if part else VERIFIES)
    packages = {each: version(each) for each in sorted(closure.packages - _INCIDENTAL)}
    return ArtifactDigest(sha256_of(sorted_json([name, closure.digest, packages])))


def verifier_part(name: str) -> type[Part] | None:
    """Return the class of a verifier or of a part of one; None where it is not offered now."""
    kind = name.partition("/")[0]
    slot, dot, inside = kind.partition(".")
    try:
        part: type[Part] = find_slot(slot).find(inside) if dot else find_slot(_VERIFIER).find(kind)
    except (ValueError, UserError):
        return None
    return part


def entry_of(part: type[Part]) -> str:
    """Return `module:class` of a part: what its code is found by."""
    return f"{part.__module__}:{part.__name__}"


def verifiers_of(
    ledger: Ledger, tables: Iterable[str] | None, also: Iterable[str] = ()
) -> list[type[Part]]:
    """Return the verifiers that tables of problems, or what stands beside them, name, with parts.

    Args:
        ledger: Holds the verifiers of every table that a stage made.
        tables: Digests of the tables. Where one is not known, or None is given, every verifier
            that ships counts.
        also: Digests of tables beside which verifiers stand. Of one whose rows name none nothing is
            known: a table of problems is always the output of a run, and what its rows name is
            recorded before that run is.

    """
    digests = list(tables or ())
    asked = [*digests, *also]
    known = ledger.compositions.parts_of(asked) if asked else {}
    if tables is None or any(digest not in known for digest in digests):
        inside = {f"{slot}.{kind}" for slot in PARTS_OF for kind in find_slot(slot).parts}
        names = inside.union(find_slot(_VERIFIER).parts)
    else:
        parts = [part for each in known.values() for part in each]
        names = {p.path.partition(":")[2] for p in parts if p.type == ArtifactKind.VERIFIER}
    return sorted({part for name in names if (part := verifier_part(name))}, key=entry_of)
