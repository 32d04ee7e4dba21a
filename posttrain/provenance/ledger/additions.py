"""What is learned about a record beside it: the parts of an artifact, ids that came late."""

from collections.abc import Mapping, Sequence

from posttrain.provenance.ledger.interning import Derivation
from posttrain.provenance.ledger.reading import read_edges
from posttrain.provenance.ledger.records import ArtifactRecord, Composition
from posttrain.provenance.ledger.store import Store, query_in
from posttrain.provenance.ledger.writing import intern_derivations

_COMPOSITION = "INSERT INTO compositions (derivation) VALUES (:derivation) ON CONFLICT DO NOTHING"
_ANNOTATION = (
    "INSERT INTO annotations (subject,name,value) VALUES (:subject,:name,:value)"
    " ON CONFLICT (subject,name) DO UPDATE SET value=excluded.value"
)


def write_compositions(store: Store, compositions: Sequence[Composition]) -> None:
    """Append compositions, all or none; what is known already stays as it was."""
    derivations = [
        Derivation(f"parts:{each.whole.digest}", each.parts, (each.whole,)) for each in compositions
    ]
    with store.transaction():
        numbers = intern_derivations(store, derivations)
        store.execute_many(_COMPOSITION, [{"derivation": number} for number in numbers])


def read_compositions(store: Store) -> list[Composition]:
    """Every composition, oldest first."""
    rows = store.query("SELECT derivation FROM compositions ORDER BY num")
    return _compositions(store, [row[0] for row in rows])


def parts_of(store: Store, digests: Sequence[str]) -> dict[str, tuple[ArtifactRecord, ...]]:
    """Parts of each of these artifacts, as recorded last; artifacts without parts are absent."""
    sql = (
        "SELECT c.num,c.derivation FROM compositions c"
        " JOIN edges e ON e.derivation=c.derivation AND e.direction=1"
        " JOIN artifacts a ON a.num=e.artifact WHERE a.digest IN ({values})"
    )
    numbers = [row[1] for row in sorted(query_in(store, sql, digests))]
    return {each.whole.digest: each.parts for each in _compositions(store, numbers)}


def _compositions(store: Store, derivations: Sequence[int]) -> list[Composition]:
    edges = read_edges(store, derivations)
    return [Composition(edges[each][1][0], edges[each][0]) for each in derivations]


def write_annotations(store: Store, name: str, values: Mapping[str, str]) -> None:
    """Note one fact about each of these runs or stage runs; the last that was told counts."""
    rows = [{"subject": each, "name": name, "value": value} for each, value in values.items()]
    if rows:
        with store.transaction():
            store.execute_many(_ANNOTATION, rows)
