"""What people say about artifacts afterwards: this is released, that is bad."""

import json
from collections.abc import Sequence

from posttrain.provenance.ledger.interning import Derivation
from posttrain.provenance.ledger.reading import read_edges
from posttrain.provenance.ledger.records import Recall, Release
from posttrain.provenance.ledger.store import Store
from posttrain.provenance.ledger.writing import intern_derivations

_RELEASE = (
    "INSERT INTO releases (tag,created,git_commit,statement,derivation) VALUES"
    " (:tag,:created,:git_commit,:statement,:derivation)"
)
_RECALL = (
    "INSERT INTO recalls (id,digest,reason,recalled,predicate,withdrawn,cleared) VALUES"
    " (:id,:digest,:reason,:recalled,:predicate,:withdrawn,:cleared)"
)


def write_release(store: Store, release: Release) -> None:
    """Append a release; its members become its inputs in the graph."""
    derivation = Derivation(f"release:{release.tag}", release.members, ())
    with store.transaction():
        number = intern_derivations(store, [derivation])[0]
        row: dict[str, object] = {
            "tag": release.tag,
            "created": release.created,
            "git_commit": release.git_commit,
            "statement": release.statement,
            "derivation": number,
        }
        store.execute_many(_RELEASE, [row])


def read_releases(store: Store) -> list[Release]:
    """Every release, oldest first."""
    sql = "SELECT tag,created,git_commit,statement,derivation FROM releases ORDER BY num"
    rows = store.query(sql)
    edges = read_edges(store, [row[4] for row in rows])
    return [
        Release(
            tag, created, edges[derivation][0] if derivation in edges else (), commit, statement
        )
        for tag, created, commit, statement, derivation in rows
    ]


def write_recalls(store: Store, recalls: Sequence[Recall]) -> None:
    """Append recalls or withdrawals, all or none."""
    with store.transaction():
        rows = [{**vars(recall), "cleared": json.dumps(recall.cleared)} for recall in recalls]
        store.execute_many(_RECALL, rows)


def read_recalls(store: Store) -> list[Recall]:
    """Every recall and withdrawal ever, oldest first."""
    sql = "SELECT id,digest,reason,recalled,predicate,withdrawn,cleared FROM recalls ORDER BY num"
    return [
        Recall(id_, digest, reason, when, rows, bool(withdrawn), tuple(json.loads(cleared)))
        for id_, digest, reason, when, rows, withdrawn, cleared in store.query(sql)
    ]


def recalls_in_force(store: Store) -> list[Recall]:
    """The last word on each (digest, predicate), where that is a recall; oldest first."""
    last = {(recall.digest, recall.predicate): recall for recall in read_recalls(store)}
    return [recall for recall in last.values() if not recall.withdrawn]
