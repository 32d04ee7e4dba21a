"""Write stage runs: one transaction, a handful of statements, whatever their number."""

from collections.abc import Mapping, Sequence

from posttrain.provenance.ledger.interning import Derivation, document, intern_rows, port
from posttrain.provenance.ledger.records import StageRun
from posttrain.provenance.ledger.store import Store, query_in
from posttrain.stage.hashing import canonical_json

_STAGE_RUN = (
    "INSERT INTO stage_runs (id,run_id,stage,task,key,status,derivation,started,ended,components,"
    "timings,metrics,host,log_path,error,attempt,mlflow_run_id) VALUES (:id,:run_id,:stage,:task,"
    ":key,:status,:derivation,:started,:ended,:components,:timings,:metrics,:host,:log_path,:error,"
    ":attempt,:mlflow_run_id)"
)
_OBJECT = "INSERT INTO objects (artifact,md5) VALUES (:artifact,:md5) ON CONFLICT DO NOTHING"
_EDGE = (
    "INSERT INTO edges (derivation,direction,position,artifact,port,rows) VALUES"
    " (:derivation,:direction,:position,:artifact,:port,:rows) ON CONFLICT DO NOTHING"
)


def write_stage_runs(store: Store, runs: Sequence[StageRun]) -> None:
    """Append `runs`, all or none."""
    groups = [{name: document(group) for name, group in run.components.items()} for run in runs]
    with store.transaction():
        documents = {pair for named in groups for pair in named.values()}
        intern_rows(store, "documents", ("sha", "body"), documents, key=1)
        derivations = intern_derivations(
            store, [Derivation(run.key, run.inputs, run.outputs) for run in runs]
        )
        rows = [
            _row(run, number, {name: sha for name, (sha, _) in named.items()})
            for run, number, named in zip(runs, derivations, groups, strict=True)
        ]
        store.execute_many(_STAGE_RUN, rows)


def intern_derivations(store: Store, derivations: Sequence[Derivation]) -> list[int]:
    """Number each derivation; edges are written for the new ones only."""
    addresses = [derivation.address() for derivation in derivations]
    shas = sorted({sha for sha, _ in addresses})
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
    store.execute_many(_OBJECT, objects)
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
    store.execute_many(_EDGE, edges)


def _row(run: StageRun, number: int, components: Mapping[str, str]) -> dict[str, object]:
    return {
        "id": run.id,
        "run_id": run.run_id,
        "stage": run.stage,
        "task": run.task,
        "key": run.key,
        "status": run.status,
        "derivation": number,
        "started": run.started,
        "ended": run.ended,
        "components": canonical_json(components),
        "timings": canonical_json(dict(run.timings)),
        "metrics": canonical_json(dict(run.metrics), finite=False),
        "host": run.host,
        "log_path": run.log_path,
        "error": run.error,
        "attempt": run.attempt,
        "mlflow_run_id": run.mlflow_run_id,
    }
