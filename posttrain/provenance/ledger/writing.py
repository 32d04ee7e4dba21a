"""Write stage runs: one transaction, a handful of statements, whatever their number.

What repeats is stored once: artifacts, ports, documents and derivations get a number each.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from posttrain.provenance.ledger.records import ArtifactRecord, StageRun
from posttrain.provenance.ledger.store import Row, Store, insert_rows, query_in
from posttrain.stage.hashing import canonical_json, sha256_of, sha256_of_json


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


def write_stage_runs(store: Store, runs: Sequence[StageRun]) -> None:
    """Append `runs`, all or none.

    Args:
        store: Of the ledger.
        runs: In the order in which they are to be read.

    """
    groups = [{name: document(group) for name, group in run.components.items()} for run in runs]
    beside = [document(run.circumstances) for run in runs]
    with store.transaction():
        documents = {pair for named in groups for pair in named.values()}
        documents |= {pair for pair, run in zip(beside, runs, strict=True) if run.circumstances}
        intern_rows(store, "documents", ("sha", "body"), documents, key=1)
        derivations = intern_derivations(
            store, [Derivation(run.key, run.inputs, run.outputs) for run in runs]
        )
        rows = [
            _row(run, number, {name: sha for name, (sha, _) in named.items()}, sha)
            for run, number, named, (sha, _) in zip(runs, derivations, groups, beside, strict=True)
        ]
        insert_rows(store, "stage_runs", rows)


def intern_derivations(store: Store, derivations: Sequence[Derivation]) -> list[int]:
    """Number each derivation; edges are written for the new ones only.

    Args:
        store: Of the ledger.
        derivations: Keys with their inputs and outputs.

    Returns:
        Their numbers, in the same order; equal ones share one.

    """
    addresses = [derivation.address() for derivation in derivations]
    shas = sorted({sha for sha, _ in addresses})
    # Asked before numbering, which inserts what is new.
    known = query_in(store, "SELECT sha FROM derivations WHERE sha IN ({values})", shas)
    numbers = intern_rows(store, "derivations", ("sha", "outputs_sha"), addresses, key=1)
    new = {sha: each for (sha, _), each in zip(addresses, derivations, strict=True)}
    for row in known:
        new.pop(row.sha)
    _write_edges(store, {numbers[(sha,)]: each for sha, each in new.items()})
    return [numbers[(sha,)] for sha, _ in addresses]


def _write_edges(store: Store, derivations: Mapping[int, Derivation]) -> None:
    records = [record for each in derivations.values() for record in (*each.inputs, *each.outputs)]
    artifacts = intern_rows(
        store,
        "artifacts",
        ("digest", "type", "size"),
        [(record.digest, record.type, record.size) for record in records],
        key=2,
    )
    objects: list[dict[str, object]] = [
        {"artifact": artifacts[record.digest, record.type], "md5": record.md5}
        for record in records
        if record.md5 is not None
    ]
    insert_rows(store, "objects", objects, conflict="DO NOTHING")
    ports = intern_rows(store, "ports", ("path", "role", "producer"), map(port, records), key=3)
    edges: list[dict[str, object]] = [
        {
            "derivation": number,
            "direction": direction,
            "position": position,
            "artifact": artifacts[record.digest, record.type],
            "port": ports[port(record)],
            "rows": record.rows,
        }
        for number, each in derivations.items()
        for direction, side in enumerate((each.inputs, each.outputs))
        for position, record in enumerate(side)
    ]
    insert_rows(store, "edges", edges, conflict="DO NOTHING")


def _row(
    run: StageRun, number: int, components: Mapping[str, str], circumstances: str
) -> dict[str, object]:
    row = {name: value for name, value in vars(run).items() if name not in ("inputs", "outputs")}
    return row | {
        "derivation": number,
        "components": canonical_json(components),
        "circumstances": circumstances if run.circumstances else None,
        "timings": canonical_json(dict(run.timings)),
        "metrics": canonical_json(dict(run.metrics), finite=False),
    }


def intern_rows(
    store: Store, table: str, columns: Sequence[str], rows: Iterable[Row], *, key: int
) -> dict[Row, int]:
    """Number each row by its first columns, inserting those that are new.

    Args:
        store: Of the ledger.
        table: With a column ``num``.
        columns: Names for the values of a row.
        rows: The rows.
        key: How many of the first columns make a row the same.

    Returns:
        Number by the first `key` values.

    """
    wanted = {row[:key]: row for row in rows}
    known = _numbers(store, table, columns[:key], wanted)
    missing = [row for name, row in wanted.items() if name not in known]
    if missing:
        new = [dict(zip(columns, row, strict=True)) for row in missing]
        # Another process may have inserted it since: what counts is the number that is there now.
        insert_rows(store, table, new, conflict="DO NOTHING")
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


def _sha(value: object) -> str:
    return sha256_of_json(value)[:32]
