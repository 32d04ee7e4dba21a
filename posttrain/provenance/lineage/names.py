"""What a user calls a node: digest prefix, path, `stage@run`, or release tag."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posttrain.provenance.ledger import Ledger, Run
from posttrain.provenance.ledger.reading import IS_DONE, read_edges
from posttrain.provenance.ledger.store import Row, Store
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.hashing import ArtifactDigest

LATEST = "latest"
_DIGEST = re.compile(r"(?:(?P<type>[a-z_]+):)?(?P<prefix>[0-9a-f]{4,64})")
_MAX_SHOWN = 5


@dataclass(frozen=True)
class Selected:
    """A node: its id in the graph, and the ledger's numbers for it.

    An artifact has `artifact`; a stage run or a release has `derivation`.
    """

    id: str
    artifact: int | None = None
    derivation: int | None = None


def find_node(ledger: Ledger, name: str, *, root: Path, cwd: Path) -> Selected:
    """Resolve what a user calls a node.

    Args:
        ledger: What is asked.
        name: A digest of 4 or more characters, a path, STAGE@RUN, a stage, or a release's tag.
        root: The project's root.
        cwd: Folder that a relative path counts from.

    Returns:
        The node.

    Raises:
        UserError: There is none, or there are several; names the nearest.

    """
    store = ledger.store
    found = (
        _release(store, name)
        or _stage_at_run(ledger, name)
        or _find_by_digest(store, name)
        or _path(store, name, root=root, cwd=cwd)
        or _stage(store, name)
        or _stage_run(store, name)
    )
    if found is None:
        raise UserError(
            f"the ledger knows no node '{name}' (a digest of 4 or more characters, a path, "
            f"STAGE@RUN or a release tag){nearest(name, _candidates(store))}"
        )
    return found


def digests_of(ledger: Ledger, node: Selected) -> list[ArtifactDigest]:
    """Collect the digests that a node stands for.

    Args:
        ledger: What is asked.
        node: An artifact, a stage run or a release.

    Returns:
        Its own, those of a run's outputs, or of a release's members; each once.

    """
    if node.artifact is not None:
        return [ArtifactDigest(node.id.partition(":")[2])]
    assert node.derivation is not None
    inputs, outputs = read_edges(ledger.store, [node.derivation])[node.derivation]
    members = inputs if node.id.startswith("release:") else outputs
    return list(dict.fromkeys(record.digest for record in members))


def find_run(ledger: Ledger, name: str) -> Run:
    """Resolve what a user calls a run.

    Args:
        ledger: What is asked.
        name: Its id or the beginning of one, `latest`, or `latest~N` for the N-th before it.

    Returns:
        The run.

    Raises:
        UserError: No run fits, or several do.

    """
    runs = ledger.runs()
    if back := re.fullmatch(rf"{LATEST}(?:~(\d+))?", name):
        steps = int(back[1] or 0)
        if steps >= len(runs):
            raise UserError(f"there is no run '{name}'; the ledger's number of runs is {len(runs)}")
        return runs[steps]
    matches = [run for run in runs if run.id == name] or [
        run for run in runs if run.id.startswith(name)
    ]
    if len(matches) == 1:
        return matches[0]
    ids = [run.id for run in matches[:_MAX_SHOWN]]
    if matches:
        raise UserError(f"'{name}' fits {len(matches)} runs: {', '.join(ids)}; give more of the id")
    raise UserError(f"the ledger knows no run '{name}'{nearest(name, [run.id for run in runs])}")


def _release(store: Store, name: str) -> Selected | None:
    rows = store.query("SELECT derivation FROM releases WHERE tag=:tag", {"tag": name})
    return Selected(f"release:{name}", derivation=rows[0].derivation) if rows else None


def _stage_at_run(ledger: Ledger, name: str) -> Selected | None:
    stage, separator, run_name = name.rpartition("@")
    if not separator or "/" in name:
        return None
    if run_name == LATEST:
        found = _stage(ledger.store, stage)
        if found is None:
            raise UserError(f"no stage '{stage}' was run{nearest(stage, _stages(ledger.store))}")
        return found
    run = find_run(ledger, run_name)
    if found := _stage(ledger.store, stage, " AND run_id=:run", run=run.id):
        return found
    sql = "SELECT DISTINCT stage FROM stage_runs WHERE run_id=:run"
    stages = ledger.store.column(sql, {"run": run.id})
    if stage in stages:
        raise UserError(f"stage '{stage}' of run {run.id} failed: it made nothing to look at")
    raise UserError(f"run {run.id} has no stage '{stage}'{nearest(stage, stages)}")


def _stage(store: Store, stage: str, among: str = "", **values: str) -> Selected | None:
    sql = f"SELECT id FROM stage_runs WHERE stage=:stage AND {IS_DONE}{among}"
    ids = store.column(f"{sql} ORDER BY num DESC LIMIT 1", {"stage": stage, **values})
    return _execution(store, ids[0]) if ids else None


def _stage_run(store: Store, name: str) -> Selected | None:
    """By the exact id, which is what JSON and OpenLineage output call it."""
    rows = store.query("SELECT id FROM stage_runs WHERE id=:id", {"id": name})
    return _execution(store, name) if rows else None


def _execution(store: Store, stage_run: str) -> Selected:
    """A stage run, or where it only reused outputs the execution that had made them."""
    sql = (
        "SELECT x.id,x.derivation FROM stage_runs s JOIN derivations d ON d.num=s.derivation"
        " JOIN stage_runs x ON x.key=s.key JOIN derivations e ON e.num=x.derivation"
        " WHERE s.id=:id AND (x.num=s.num OR x.status='succeeded' AND s.status<>'succeeded'"
        " AND e.outputs_sha=d.outputs_sha) ORDER BY x.num=s.num, x.num DESC LIMIT 1"
    )
    found = store.query(sql, {"id": stage_run})[0]
    return Selected(found.id, derivation=found.derivation)


def _find_by_digest(store: Store, name: str) -> Selected | None:
    match = _DIGEST.fullmatch(name)
    if match is None:
        return None
    sql = "SELECT num,type,digest FROM artifacts WHERE digest>=:low AND digest<:high"
    kind = match["type"]
    rows = [
        row
        for row in store.query(sql, {"low": match["prefix"], "high": match["prefix"] + "g"})
        if kind in (None, row.type)
    ]
    if len(rows) > 1:
        shown = ", ".join(f"{row.type}:{row.digest[:12]}" for row in rows[:_MAX_SHOWN])
        raise UserError(f"'{name}' fits {len(rows)} artifacts: {shown}; give more of the digest")
    return _artifact(rows[0]) if rows else None


def _path(store: Store, name: str, *, root: Path, cwd: Path) -> Selected | None:
    """The bytes that are at a path now; where there are none, those last recorded there."""
    on_disk = cwd / name
    recorded = _last_at(store, name, on_disk, root)
    if not on_disk.exists():
        return recorded
    finder = Finder(root)
    digest = finder.digest(on_disk)
    finder.remember()
    sql = "SELECT num,type,digest FROM artifacts WHERE digest=:digest ORDER BY num DESC"
    rows = store.query(sql, {"digest": digest})
    if rows:
        same = [row for row in rows if recorded is not None and row.num == recorded.artifact]
        return _artifact((same or rows)[0])
    if recorded is None:
        return None
    last = recorded.id.partition(":")[2][:12]
    raise UserError(
        f"{name} now holds bytes that no run has read or made ({digest[:12]}); "
        f"what was last recorded there is {last}: name that, or run the stage again"
    )


def _last_at(store: Store, name: str, on_disk: Path, root: Path) -> Selected | None:
    """What the newest stage run had at this path, said as recorded or relative to the project."""
    sql = (
        "SELECT a.num,a.type,a.digest FROM ports p JOIN edges e ON e.port=p.num"
        " JOIN artifacts a ON a.num=e.artifact WHERE p.path=:path"
        " ORDER BY (SELECT MAX(s.num) FROM stage_runs s WHERE s.derivation=e.derivation"
        f" AND s.{IS_DONE}) DESC, e.derivation DESC LIMIT 1"
    )
    for path in _spellings(name, on_disk, root):
        rows = store.query(sql, {"path": path})
        if rows:
            return _artifact(rows[0])
    return None


def _artifact(row: Row) -> Selected:
    return Selected(f"{row.type}:{row.digest}", artifact=row.num)


def _spellings(name: str, on_disk: Path, root: Path) -> list[str]:
    plain = Path(name).as_posix()
    spelled = [name, plain]
    if on_disk.is_relative_to(root):
        relative = on_disk.relative_to(root)
        # Paths are recorded relative to their recipe, which may be some folders down.
        spelled += [Path(*relative.parts[skip:]).as_posix() for skip in range(len(relative.parts))]
    return list(dict.fromkeys(spelled))


def _stages(store: Store) -> list[str]:
    return store.column("SELECT DISTINCT stage FROM stage_runs")


def _candidates(store: Store) -> Sequence[str]:
    paths = store.column("SELECT DISTINCT path FROM ports")
    tags = store.column("SELECT tag FROM releases")
    return [*paths, *_stages(store), *tags]
