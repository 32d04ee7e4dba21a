"""Store what repeats once: artifacts, ports, documents and derivations get a number each."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from posttrain.provenance.ledger.records import ArtifactRecord
from posttrain.provenance.ledger.store import Row, Store, query_in
from posttrain.stage.hashing import canonical_json, sha256_of, sha256_of_json


def intern_rows(
    store: Store, table: str, columns: Sequence[str], rows: Iterable[Row], *, key: int
) -> dict[Row, int]:
    """Number each of `rows` by its first `key` columns, inserting those that are new."""
    wanted = {row[:key]: row for row in rows}
    known = _numbers(store, table, columns[:key], wanted)
    missing = [row for name, row in wanted.items() if name not in known]
    if missing:
        names = ",".join(f":{column}" for column in columns)
        store.execute_many(
            f"INSERT INTO {table} ({','.join(columns)}) VALUES ({names}) ON CONFLICT DO NOTHING",
            [dict(zip(columns, row, strict=True)) for row in missing],
        )
        known |= _numbers(store, table, columns[:key], {row[:key]: row for row in missing})
    return known


def _numbers(
    store: Store, table: str, columns: Sequence[str], wanted: Mapping[Row, Row]
) -> dict[Row, int]:
    sql = f"SELECT num,{','.join(columns)} FROM {table} WHERE {columns[0]} IN ({{values}})"
    found = query_in(store, sql, list(dict.fromkeys(name[0] for name in wanted)))
    numbers = {tuple(row[1:]): row.num for row in found}
    return {name: number for name, number in numbers.items() if name in wanted}


def document(group: Mapping[str, str]) -> tuple[str, str]:
    """Address and text of one group of key components."""
    body = canonical_json(dict(group))
    return sha256_of(body)[:32], body


def port(record: ArtifactRecord) -> tuple[str, str, str]:
    """Path, role and producer; the empty string stands for no producer, as NULLs never collide."""
    return record.path, record.role, record.producer or ""


class Derivation(NamedTuple):
    """What went in and what came out under one key; stage runs that repeat it share one."""

    key: str
    inputs: tuple[ArtifactRecord, ...]
    outputs: tuple[ArtifactRecord, ...]

    def address(self) -> tuple[str, str]:
        """Address of all of it, and of the outputs alone."""
        outputs = sorted([record.role, record.type, record.digest] for record in self.outputs)
        edges = [
            [record.role, record.type, record.path, record.digest, record.rows, record.producer]
            for record in (*self.inputs, *self.outputs)
        ]
        return _sha([self.key, len(self.inputs), edges]), _sha(outputs)


def _sha(value: object) -> str:
    return sha256_of_json(value)[:32]
