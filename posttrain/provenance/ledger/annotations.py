"""What is said of records afterwards: released, recalled, verified, adopted, pinned, tracked."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from posttrain.provenance.ledger.reading import read_edges
from posttrain.provenance.ledger.records import Adoption, Recall, Release, Verification
from posttrain.provenance.ledger.store import Row, Store, insert_rows, query_in
from posttrain.provenance.ledger.writing import Derivation, intern_derivations
from posttrain.stage.hashing import canonical_json

_VERIFIED = "verified:"
_ADOPTED = "adopted"
TRACKED = "mlflow_run_id"
"""The note on a run or stage run: id of the MLflow run that shows it, where that came late."""
RECIPE_FOLDER = "recipe_folder"
"""The note on a run: the folder of its recipe from the project's root, `.` for the root itself."""
_RELEASES = "SELECT tag,created,git_commit,statement,derivation,actor FROM releases ORDER BY num"
_RECALLS = (
    "SELECT id,digest,reason,recalled,predicate,withdrawn,cleared,actor FROM recalls ORDER BY num"
)
_NOTED = "SELECT subject,value FROM annotations WHERE name=:name ORDER BY num"
_VERIFICATIONS = f"SELECT value FROM annotations WHERE name LIKE '{_VERIFIED}%'"
_OF_KEYS = (
    "SELECT s.key,a.value FROM stage_runs s JOIN annotations a ON a.subject=s.id"
    " WHERE a.name LIKE :name AND s.key IN ({values})"
)


@dataclass(frozen=True)
class Annotations:
    """Facts beside the records, which stay as they are.

    Everything is append-only but notes, of which the last counts.
    """

    _store: Store

    def note(self, name: str, values: Mapping[str, str]) -> None:
        """Note one fact about each subject; what was noted last counts.

        Args:
            name: What the fact is, such as `mlflow_run_id`.
            values: Id of a run or stage run, or digest of an artifact -> the fact.

        """
        rows = [(subject, name, value) for subject, value in values.items()]
        self._append(rows, "DO UPDATE SET value=excluded.value")

    def noted(self, name: str) -> dict[str, str]:
        """Every subject with a fact of that name, in the order in which they were first noted."""
        return {row.subject: row.value for row in self._store.query(_NOTED, {"name": name})}

    def adopt(self, *adoptions: Adoption) -> None:
        """Say of stage runs that they took a result of another version over."""
        rows = [(each.subject, _ADOPTED, canonical_json(asdict(each))) for each in adoptions]
        self._append(rows, "DO NOTHING")

    def adoptions(self) -> dict[str, Adoption]:
        """Every adoption, by the stage run that was recorded for it."""
        return {name: _adoption(value) for name, value in self.noted(_ADOPTED).items()}

    def adoptions_of(self, keys: Sequence[str]) -> dict[str, Adoption]:
        """The adoption by which there is a result under each of these keys; none is absent."""
        return {row.key: _adoption(row.value) for row in _noted_of(self._store, keys, _ADOPTED)}

    def release(self, release: Release) -> None:
        """Append a release; its members become its inputs in the graph."""
        derivation = Derivation(f"release:{release.tag}", release.members, ())
        with self._store.transaction():
            number = intern_derivations(self._store, [derivation])[0]
            row = {name: value for name, value in vars(release).items() if name != "members"}
            insert_rows(self._store, "releases", [{**row, "derivation": number}])

    def releases(self) -> list[Release]:
        """Every release, oldest first."""
        rows = self._store.query(_RELEASES)
        edges = read_edges(self._store, [row.derivation for row in rows])
        return [
            Release(
                row.tag,
                row.created,
                edges[row.derivation][0],
                row.git_commit,
                row.statement,
                row.actor,
            )
            for row in rows
        ]

    def recall(self, *recalls: Recall) -> None:
        """Append recalls, or withdrawals of earlier ones, all or none."""
        rows = [{**vars(recall), "cleared": json.dumps(recall.cleared)} for recall in recalls]
        with self._store.transaction():
            insert_rows(self._store, "recalls", rows)

    def every_recall(self) -> list[Recall]:
        """Every recall and withdrawal ever, oldest first."""
        return [
            Recall(
                **row._asdict()
                | {"withdrawn": bool(row.withdrawn), "cleared": tuple(json.loads(row.cleared))}
            )
            for row in self._store.query(_RECALLS)
        ]

    def recalls(self) -> list[Recall]:
        """The recalls in force: the last word on each (digest, predicate), oldest first."""
        last = {(recall.digest, recall.predicate): recall for recall in self.every_recall()}
        return [recall for recall in last.values() if not recall.withdrawn]

    def verify(self, *verifications: Verification) -> None:
        """Append what was found when something was run again; what is there stays as it is."""
        # The instant is part of the name, so that nothing that was found is ever overwritten.
        names = [f"{_VERIFIED}{each.level}:{each.verified:.6f}" for each in verifications]
        rows = [
            (each.subject, name, json.dumps(asdict(each), sort_keys=True))
            for each, name in zip(verifications, names, strict=True)
        ]
        self._append(rows, "DO NOTHING")

    def verifications(self) -> list[Verification]:
        """Everything that was ever found so, oldest first."""
        return _oldest_first(self._store.column(_VERIFICATIONS))

    def verifications_of(self, keys: Sequence[str]) -> dict[str, list[Verification]]:
        """What was found of stage runs under each of these keys, oldest first; none is absent."""
        found: dict[str, list[str]] = {}
        for row in _noted_of(self._store, keys, f"{_VERIFIED}%"):
            found.setdefault(row.key, []).append(row.value)
        return {key: _oldest_first(values) for key, values in found.items()}

    def _append(self, rows: Sequence[tuple[str, str, str]], conflict: str) -> None:
        named = [dict(zip(("subject", "name", "value"), row, strict=True)) for row in rows]
        if named:
            with self._store.transaction():
                insert_rows(
                    self._store, "annotations", named, conflict=f"(subject,name) {conflict}"
                )


def standing(found: Sequence[Verification]) -> Mapping[str, bool]:
    """The last word at each level: whether it held."""
    return {each.level: each.holds for each in found}


def _noted_of(store: Store, keys: Sequence[str], name: str) -> list[Row]:
    return query_in(store, _OF_KEYS, sorted(set(keys)), fixed={"name": name})


def _adoption(value: str) -> Adoption:
    fields = json.loads(value)
    return Adoption(**{**fields, "differences": tuple(fields["differences"])})


def _oldest_first(values: Iterable[str]) -> list[Verification]:
    read = [Verification(**json.loads(value)) for value in values]
    return sorted(read, key=lambda each: (each.verified, each.subject, each.level))
