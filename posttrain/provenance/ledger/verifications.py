"""What came of running something again: kept beside the record that was run again, for good."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from posttrain.provenance.ledger.records import Verification
from posttrain.provenance.ledger.store import Store, query_in

_PREFIX = "verified:"
_INSERT = (
    "INSERT INTO annotations (subject,name,value) VALUES (:subject,:name,:value)"
    " ON CONFLICT (subject,name) DO NOTHING"
)


def write_verifications(store: Store, verifications: Sequence[Verification]) -> None:
    """Append verifications, all or none; one that is there already stays as it is."""
    rows = [
        {
            "subject": each.subject,
            # The instant is part of the name, so that nothing that was found is ever overwritten.
            "name": f"{_PREFIX}{each.level}:{each.verified:.6f}",
            "value": json.dumps(asdict(each), sort_keys=True),
        }
        for each in verifications
    ]
    with store.transaction():
        store.execute_many(_INSERT, rows)


def read_verifications(store: Store) -> list[Verification]:
    """Every verification ever, oldest first."""
    sql = f"SELECT value FROM annotations WHERE name LIKE '{_PREFIX}%'"
    return _oldest_first(row[0] for row in store.query(sql))


def verifications_of(store: Store, keys: Sequence[str]) -> dict[str, list[Verification]]:
    """What was found of the stage runs under each of these keys, oldest first; none is absent."""
    sql = (
        "SELECT s.key,a.value FROM stage_runs s JOIN annotations a ON a.subject=s.id"
        f" AND a.name LIKE '{_PREFIX}%' WHERE s.key IN ({{values}})"
    )
    found: dict[str, list[str]] = {}
    for key, value in query_in(store, sql, sorted(set(keys))):
        found.setdefault(key, []).append(value)
    return {key: _oldest_first(values) for key, values in found.items()}


def standing(found: Sequence[Verification]) -> Mapping[str, bool]:
    """The last word at each level: whether it held."""
    return {each.level: each.holds for each in found}


def _oldest_first(values: Iterable[str]) -> list[Verification]:
    read = [Verification(**json.loads(value)) for value in values]
    return sorted(read, key=lambda each: (each.verified, each.subject, each.level))
