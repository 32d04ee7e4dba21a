"""What artifacts carry inside: a checkpoint its tokenizer and template, a table its verifiers."""

from collections.abc import Sequence

from posttrain.provenance.ledger.reading import read_edges
from posttrain.provenance.ledger.records import ArtifactRecord, Composition
from posttrain.provenance.ledger.store import Store, insert_rows, query_in
from posttrain.provenance.ledger.writing import Derivation, intern_derivations

_ALL = "SELECT derivation FROM compositions ORDER BY num"
_OF_WHOLES = (
    "SELECT c.num,c.derivation FROM compositions c"
    " JOIN edges e ON e.derivation=c.derivation AND e.direction=1"
    " JOIN artifacts a ON a.num=e.artifact WHERE a.digest IN ({values})"
)


class Compositions:
    """The parts of artifacts, as recorded; append-only."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, *compositions: Composition) -> None:
        """Append compositions, all or none; what is known already stays as it was."""
        if not compositions:
            return
        derivations = [
            Derivation(f"parts:{each.whole.digest}", each.parts, (each.whole,))
            for each in compositions
        ]
        with self._store.transaction():
            numbers = intern_derivations(self._store, derivations)
            rows = [{"derivation": number} for number in numbers]
            insert_rows(self._store, "compositions", rows, conflict="DO NOTHING")

    def all(self) -> list[Composition]:
        """Every artifact with parts, oldest first."""
        return self._read(self._store.column(_ALL))

    def parts_of(self, digests: Sequence[str]) -> dict[str, tuple[ArtifactRecord, ...]]:
        """Parts of each of these artifacts, as recorded last; those without any are absent."""
        rows = sorted(query_in(self._store, _OF_WHOLES, digests))
        return {each.whole.digest: each.parts for each in self._read([r.derivation for r in rows])}

    def _read(self, derivations: Sequence[int]) -> list[Composition]:
        edges = read_edges(self._store, derivations)
        return [Composition(edges[each][1][0], edges[each][0]) for each in derivations]
