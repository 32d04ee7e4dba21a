"""Walks over the ledger's edges, by number: recursive SQL, a million edges well under a second."""

from collections.abc import Sequence

from posttrain.pipeline.ledger.store import Row, Store, query_in

# UNION (not UNION ALL) drops what was seen, so diamonds cost nothing and the walk ends. Both
# databases work through the recursion level by level: nearest artifacts come first.
_UP = (
    "WITH RECURSIVE seen(artifact) AS (SELECT num FROM artifacts WHERE num IN ({seeds})"
    " UNION SELECT i.artifact FROM seen"
    " JOIN edges o ON o.artifact=seen.artifact AND o.direction=1"
    " JOIN edges i ON i.derivation=o.derivation AND i.direction=0)"
    " SELECT artifact FROM seen"
)
_DOWN = (
    "WITH RECURSIVE seen(artifact) AS (SELECT num FROM artifacts WHERE num IN ({seeds})"
    " UNION SELECT o.artifact FROM seen"
    " JOIN edges i ON i.artifact=seen.artifact AND i.direction=0"
    " JOIN edges o ON o.derivation=i.derivation AND o.direction=1)"
    " SELECT artifact FROM seen"
)


def ancestors(store: Store, artifacts: Sequence[int]) -> list[int]:
    """`artifacts` and all that they were made from, nearest first."""
    return _walk(store, _UP, artifacts)


def descendants(store: Store, artifacts: Sequence[int]) -> list[int]:
    """`artifacts` and all that was made from them, nearest first."""
    return _walk(store, _DOWN, artifacts)


def makers(store: Store, artifacts: Sequence[int]) -> list[int]:
    """Derivations that made one of `artifacts`."""
    sql = "SELECT DISTINCT derivation FROM edges WHERE direction=1 AND artifact IN ({values})"
    return _distinct(query_in(store, sql, artifacts))


def users(store: Store, artifacts: Sequence[int]) -> list[int]:
    """Derivations that made one of `artifacts` from another one of them."""
    sql = (
        "SELECT DISTINCT o.derivation,i.artifact FROM edges o"
        " JOIN edges i ON i.derivation=o.derivation AND i.direction=0"
        " WHERE o.direction=1 AND o.artifact IN ({values})"
    )
    among = set(artifacts)
    rows = query_in(store, sql, artifacts)
    return _distinct([row for row in rows if row[1] in among])


def releases_of(store: Store, artifacts: Sequence[int]) -> list[int]:
    """Derivations that stand for a release with one of `artifacts` as a member."""
    members = "SELECT r.derivation,e.artifact FROM releases r JOIN edges e USING (derivation)"
    among = set(artifacts)
    return _distinct([row for row in store.query(members) if row[1] in among])


def members(store: Store, derivations: Sequence[int], *, outputs: bool) -> list[int]:
    """Artifacts on one side of `derivations`."""
    sql = (
        f"SELECT DISTINCT artifact FROM edges WHERE direction={int(outputs)}"
        " AND derivation IN ({values})"
    )
    return _distinct(query_in(store, sql, derivations))


def numbers_of(store: Store, digests: Sequence[str]) -> dict[int, str]:
    """Artifacts, by number, whose digest is one of `digests`."""
    sql = "SELECT num,digest FROM artifacts WHERE digest IN ({values})"
    return {row[0]: row[1] for row in query_in(store, sql, digests)}


def _walk(store: Store, sql: str, artifacts: Sequence[int]) -> list[int]:
    if not artifacts:
        return []
    rows = store.query(sql.replace("{seeds}", ",".join(map(str, artifacts))))
    return [row[0] for row in rows]


def _distinct(rows: Sequence[Row]) -> list[int]:
    return list(dict.fromkeys(row[0] for row in rows))
