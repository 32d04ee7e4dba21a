"""Turn numbers found by a walk into a graph of nodes with their facts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from posttrain.provenance.ledger import Ledger
from posttrain.provenance.ledger.reading import StageRunReader, read_edges
from posttrain.provenance.ledger.records import Adoption, ArtifactRecord, StageRun
from posttrain.provenance.ledger.store import Row, Store, query_in
from posttrain.provenance.lineage.graph import Edge, Graph, Node
from posttrain.provenance.lineage.names import Selected
from posttrain.stage.artifact_kinds import ARTIFACT_KINDS

_EXECUTED = "s.status='succeeded'"
_REUSED = "s.status IN ('cached','restored')"


def build_graph(
    ledger: Ledger, root: Selected, artifacts: Sequence[int], derivations: Sequence[int]
) -> Graph:
    """Build the graph of these artifacts and derivations; only edges between them are drawn.

    Args:
        ledger: What it is read from.
        root: The node that was asked about.
        artifacts: Their numbers.
        derivations: Their numbers.

    Returns:
        Nodes of artifacts, stage runs and releases, and their edges.

    """
    store = ledger.store
    nodes = {node.id: node for node in artifact_nodes(ledger, artifacts)}
    edges: list[Edge] = []
    shown = _one_per_work(stage_runs_of(store, derivations))
    # Whoever asks for one of several equal executions gets that one.
    shown |= {_work(run): run for run in StageRunReader(store).where("id=:id", {"id": root.id})}
    shown = _made_in_time(store, shown, root, derivations)
    adoptions = ledger.annotations.adoptions_of([stage.key for stage in shown.values()])
    for stage in shown.values():
        node = nodes[stage.id] = stage_node(stage, adoptions.get(stage.key))
        edges += [Edge(artifact_id(record), node.id, record.role) for record in stage.inputs]
        edges += [Edge(node.id, artifact_id(record), record.role) for record in stage.outputs]
    for node, members in _releases(store, derivations):
        nodes[node.id] = node
        edges += [Edge(artifact_id(record), node.id, record.role) for record in members]
    edges += _holdings(store, derivations)
    return Graph(root.id, nodes, tuple(e for e in edges if {e.source, e.target} <= nodes.keys()))


def artifact_id(record: ArtifactRecord) -> str:
    """Artifacts are one node per type and digest, whatever their path."""
    return f"{record.type}:{record.digest}"


def stage_runs_of(store: Store, derivations: Sequence[int]) -> list[StageRun]:
    """Read the newest execution of each derivation, or its newest reuse.

    Args:
        store: Of the ledger.
        derivations: Their numbers.

    Returns:
        In that order; none of one that only failed.

    """
    newest = _newest(store, _EXECUTED, derivations)
    newest |= _newest(store, _REUSED, [each for each in derivations if each not in newest])
    ids = [newest[each] for each in derivations if each in newest]
    found = {run.id: run for run in StageRunReader(store).where_in("id IN ({values})", ids)}
    return [found[each] for each in ids]


def _newest(store: Store, condition: str, derivations: Sequence[int]) -> dict[int, str]:
    sql = (
        "SELECT derivation,id FROM stage_runs WHERE num IN (SELECT MAX(s.num) FROM stage_runs s"
        f" WHERE s.derivation IN ({{values}}) AND {condition} GROUP BY s.derivation)"
    )
    return {row.derivation: row.id for row in query_in(store, sql, derivations)}


def _one_per_work(runs: Iterable[StageRun]) -> dict[object, StageRun]:
    """Of stage runs with equal inputs and outputs (only their keys differ) the newest execution."""
    unique: dict[object, StageRun] = {}
    for run in sorted(runs, key=lambda run: (run.status == "succeeded", run.ended)):
        unique.pop(_work(run), None)
        unique[_work(run)] = run
    return unique


def _made_in_time(
    store: Store, shown: dict[object, StageRun], root: Selected, derivations: Sequence[int]
) -> dict[object, StageRun]:
    """In place of one that ended after its reader began, the newest execution that did not."""
    executions: list[StageRun] | None = None
    late = True
    while late:
        late = False
        begun: dict[str, set[float]] = {}
        for reader in shown.values():
            for record in reader.inputs:
                begun.setdefault(artifact_id(record), set()).add(reader.started)
        for work, run in shown.items():
            starts = set().union(*(begun.get(artifact_id(each), ()) for each in run.outputs))
            if run.id == root.id or run.ended <= min(starts, default=run.ended):
                continue
            if executions is None:
                executions = _executions(store, derivations)
            equal = [each for each in executions if _work(each) == work]
            # Of several readers the first one that any execution came before.
            found = ([each for each in equal if each.ended <= start] for start in sorted(starts))
            in_time = next((each for each in found if each), [run])
            newest = max(in_time, key=lambda each: each.ended)
            if newest.id != run.id and newest.ended < run.ended:
                shown[work] = newest
                late = True
    return shown


def _executions(store: Store, derivations: Sequence[int]) -> list[StageRun]:
    sql = f"SELECT s.id FROM stage_runs s WHERE s.derivation IN ({{values}}) AND {_EXECUTED}"
    ids = [row.id for row in query_in(store, sql, derivations)]
    return StageRunReader(store).where_in("id IN ({values})", ids)


def _work(run: StageRun) -> object:
    """What a stage run did, whatever its key."""
    inputs = tuple(artifact_id(record) for record in run.inputs)
    return run.stage, inputs, tuple(artifact_id(record) for record in run.outputs)


def stage_node(run: StageRun, adoption: Adoption | None = None) -> Node:
    """Describe a stage run as a node.

    Args:
        run: As it was recorded.
        adoption: Why its result was taken over; None where it was not.

    Returns:
        A node of kind ``stage``, with parameters and metrics.

    """
    facts: dict[str, str | int | float | None] = {
        "run": run.run_id,
        "status": run.status,
        "started": run.started,
        "seconds": round(run.seconds, 3),
        "key": run.key,
        "host": run.host,
        "attempt": run.attempt,
        "log": run.log_path,
        "mlflow run": run.mlflow_run_id,
    }
    if adoption is not None:
        facts |= {"adopted from": adoption.source, "adopted as": adoption.reason}
    facts |= {f"param {name}": value for name, value in run.components.get("params", {}).items()}
    return Node(run.id, "stage", run.task, run.stage, facts, run.metrics)


def artifact_nodes(ledger: Ledger, artifacts: Sequence[int]) -> list[Node]:
    """Describe artifacts as nodes, each with the path at which it was made last.

    Args:
        ledger: What they are read from.
        artifacts: Their numbers.

    Returns:
        Nodes, in the given order.

    """
    # The newest edge tells: one that made it before one that only read it.
    place = (
        "(SELECT {column} FROM edges e JOIN ports p ON p.num=e.port WHERE e.artifact=a.num"
        " ORDER BY e.direction DESC, {newest} LIMIT 1)"
    )
    # A part is known by the first artifact that held it.
    kinds = ",".join(f"'{kind}'" for kind in ARTIFACT_KINDS.values() if kind.is_inside)
    newest = f"CASE WHEN p.role IN ({kinds}) THEN e.derivation ELSE -e.derivation END"
    columns = ",".join(
        f"{place.format(column=name, newest=newest)} AS {name[2:]}"
        for name in ("p.path", "e.rows", "p.producer")
    )
    sql = (
        f"SELECT a.num,a.type,a.digest,a.size,o.md5,{columns} FROM artifacts a"
        " LEFT JOIN objects o ON o.artifact=a.num WHERE a.num IN ({values})"
    )
    found = {row.num: row for row in query_in(ledger.store, sql, artifacts)}
    recalled: dict[str, str] = {
        recall.digest: _state_recall(recall.reason, recall.predicate)
        for recall in ledger.annotations.recalls()
    }
    return [_artifact_node(found[number], recalled) for number in artifacts]


def _artifact_node(row: Row, recalled: Mapping[str, str]) -> Node:
    facts = {
        "digest": row.digest,
        "bytes": row.size,
        "rows": row.rows,
        "producer": row.producer or None,
        "md5": row.md5,
    }
    shown = row.path or row.digest[:12]
    node = Node(f"{row.type}:{row.digest}", "artifact", row.type, shown, facts)
    return replace(node, recalled=recalled.get(row.digest))


def _state_recall(reason: str, predicate: str | None) -> str:
    return f"rows where {predicate}: {reason}" if predicate else reason


def _holdings(store: Store, derivations: Sequence[int]) -> dict[Edge, None]:
    """An edge from each part to what holds it; no stage run is between the two."""
    sql = "SELECT derivation FROM compositions WHERE derivation IN ({values})"
    sides = read_edges(store, [row.derivation for row in query_in(store, sql, derivations)])
    return {
        Edge(artifact_id(part), artifact_id(whole), part.role): None
        for parts, wholes in sides.values()
        for whole in wholes
        for part in parts
    }


def _releases(
    store: Store, derivations: Sequence[int]
) -> list[tuple[Node, tuple[ArtifactRecord, ...]]]:
    sql = "SELECT derivation,tag,created,git_commit,statement FROM releases"
    among = set(derivations)
    rows = [row for row in store.query(sql) if row.derivation in among]
    sides = read_edges(store, [row.derivation for row in rows])
    return [(_release_node(row), sides[row.derivation][0]) for row in rows]


def _release_node(row: Row) -> Node:
    facts = {"created": row.created, "git commit": row.git_commit, "statement": row.statement}
    return Node(f"release:{row.tag}", "release", "release", row.tag, facts)
