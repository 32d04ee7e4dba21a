"""Bad data: mark it, and refuse whatever would still use it."""

import time
import uuid
from collections.abc import Mapping, Sequence

from posttrain.errors import UserError
from posttrain.lineage import walk
from posttrain.lineage.names import Selected
from posttrain.pipeline.ledger import Ledger, Recall
from posttrain.pipeline.ledger.reading import read_edges
from posttrain.pipeline.ledger.store import query_in


def recall(
    ledger: Ledger, node: Selected, *, reason: str, predicate: str | None = None
) -> list[Recall]:
    """Mark an artifact, every output of a stage run, or every member of a release as bad."""
    if not reason.strip():
        raise UserError("a recall needs a reason: --reason 'what is wrong with it'")
    return _append(ledger, _digests(ledger, node), reason, predicate, withdrawn=False)


def withdraw(ledger: Ledger, node: Selected, *, reason: str) -> list[Recall]:
    """Take back every recall of a node that is in force, row-wise ones included."""
    digests = _digests(ledger, node)
    standing = [each for each in ledger.recalls() if each.digest in digests]
    if not standing:
        raise UserError("no recall of that node is in force; see 'posttrain lineage recalls'")
    taken_back = []
    for each in standing:
        taken_back += _append(ledger, [each.digest], reason, each.predicate, withdrawn=True)
    return taken_back


def recalled(ledger: Ledger, digests: Sequence[str]) -> dict[str, str]:
    """Why each of `digests` must not be used; those that may be are absent.

    An artifact is bad when it was recalled itself, also in part, or when anything that it was made
    from was. Costs one query while nothing is recalled.
    """
    standing = {each.digest: each for each in ledger.recalls()}
    if not standing:
        return {}
    bad = {digest: _sentence(standing[digest], "it") for digest in digests if digest in standing}
    numbers = walk.numbers_of(ledger.store, [each for each in digests if each not in bad])
    sources = walk.numbers_of(ledger.store, list(standing))
    # One walk for all of them tells whether there is anything to say at all.
    if sources.keys().isdisjoint(walk.ancestors(ledger.store, list(numbers))):
        return bad
    paths = _paths(ledger, list(sources))
    for number, digest in numbers.items():
        for ancestor in walk.ancestors(ledger.store, [number]):
            if ancestor in sources and digest not in bad:
                made_from = f"it is made from {paths[ancestor]} ({sources[ancestor][:12]}), which"
                bad[digest] = _sentence(standing[sources[ancestor]], made_from)
    return bad


def _sentence(recall: Recall, subject: str) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime(recall.recalled))
    rows = f" where {recall.predicate}" if recall.predicate else ""
    part = " has rows that were" if recall.predicate else " was"
    return f"{subject}{part} recalled on {day}: {recall.reason}{rows and f' (rows{rows})'}"


def _append(
    ledger: Ledger,
    digests: Sequence[str],
    reason: str,
    predicate: str | None,
    *,
    withdrawn: bool,
) -> list[Recall]:
    now = time.time()
    recalls = [
        Recall(uuid.uuid4().hex, digest, reason, now, predicate, withdrawn) for digest in digests
    ]
    ledger.recall(*recalls)
    return recalls


def _digests(ledger: Ledger, node: Selected) -> list[str]:
    if node.artifact is not None:
        return [node.id.partition(":")[2]]
    assert node.derivation is not None
    inputs, outputs = read_edges(ledger.store, [node.derivation])[node.derivation]
    members = inputs if node.id.startswith("release:") else outputs
    return list(dict.fromkeys(record.digest for record in members))


def _paths(ledger: Ledger, artifacts: Sequence[int]) -> Mapping[int, str]:
    sql = (
        "SELECT e.artifact,MAX(p.path) FROM edges e JOIN ports p ON p.num=e.port"
        " WHERE e.artifact IN ({values}) GROUP BY e.artifact"
    )
    return {row[0]: row[1] for row in query_in(ledger.store, sql, artifacts)}
