"""Two locks beside a recipe, both committed: what its artifacts are, and which runs made them.

`dvc.lock` is kept true without asking DVC each time whether it is. `posttrain.lock` is for clones,
which have no ledger: from it they know the keys of what was made, what each was made of, and under
which names the DVC cache and remote hold the bytes, so that a plan finds them up to date, or says
what differs. Its lines are those of an exported ledger.
"""

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from posttrain.pipeline.dvc_views import keep_views
from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.dvc import LOCK_FILE, DvcStore, LockEntry
from posttrain.provenance.ledger import ArtifactRecord, Ledger, StageRun
from posttrain.provenance.ledger.store import query_in
from posttrain.provenance.ledger.transfer import export_stages, import_ledger, stage_runs_in
from posttrain.stage.errors import UserError
from posttrain.stage.files import replacing
from posttrain.stage.hashing import StatCache, digest_path, sha256_of, sha256_of_file, sorted_json

NAME = "posttrain.lock"
_CONFLICT = ("<<<<<<<", "=======", ">>>>>>>")
Made = Mapping[str, Mapping[str, ArtifactRecord]]


def refresh_lock(
    workspace: Workspace,
    store: DvcStore,
    entries: Sequence[LockEntry],
    made: Made,
    stat_cache: StatCache,
    *,
    beside: Path | None = None,
) -> bool:
    """Write the entries of the stages in `made` unless they are known to stand there already.

    A comment edited in a dependency changes no key, but it changes the file's hash, which
    `dvc status` compares: the lock follows the file, and nothing runs. One that lies `beside` is
    the committed one with what a try made.
    """
    ready = [entry for entry in entries if entry.name in made]
    if not ready:
        return False
    lock = workspace.recipe_dir / LOCK_FILE
    if beside is not None:
        if lock.is_file():
            shutil.copyfile(lock, beside / LOCK_FILE)
        return store.write_lock(ready, keep=[entry.name for entry in entries], folder=beside)
    memory = workspace.state / f"lock-{workspace.slug}.digest"
    if (
        lock.is_file()
        and memory.is_file()
        and memory.read_text() == _digest_lock(workspace, ready, made, stat_cache)
    ):
        return False
    store.write_lock(ready, keep=[entry.name for entry in entries])
    memory.write_text(_digest_lock(workspace, ready, made, stat_cache))
    return True


def learn_committed(folder: Path, ledger: Ledger) -> dict[str, StageRun]:
    """Append what the file says and the ledger does not know yet.

    Args:
        folder: Of the recipe; without the file nothing is learned.
        ledger: What is appended to.

    Returns:
        The stage runs that the file names, by stage.

    Raises:
        UserError: The file is damaged, or holds a merge conflict.

    """
    lines = _lines(folder / NAME)
    runs = stage_runs_in(lines, where=NAME)
    sql = "SELECT id FROM stage_runs WHERE id IN ({values})"
    if len(query_in(ledger.store, sql, [each.id for each in runs])) < len(runs):
        import_ledger(ledger, lines, where=NAME)
    return {each.stage: each for each in runs}


def keep_committed(
    folder: Path, ledger: Ledger, records: Mapping[str, StageRun], stages: Collection[str]
) -> bool:
    """Let the file say what made the outputs that are in place now, and DVC show what they are.

    What is reused or restored stays as it stands: two clones that make nothing write nothing.

    Args:
        folder: Of the recipe.
        ledger: Has the run that made each of them.
        records: Stages whose outputs are in place.
        stages: All stages of the flow in order; others leave the file.

    Returns:
        False if the file already said so.

    """
    keep_views(folder, records, stages)
    stood = {each.stage: each for each in committed(folder)}
    kept = [
        made
        for name in stages
        if (made := _maker(stood.get(name), records.get(name), ledger)) is not None
    ]
    if [each.id for each in kept] == [each.id for each in stood.values()]:
        return False
    with replacing(folder / NAME) as partial, partial.open("w", encoding="utf-8") as stream:
        export_stages(ledger, kept, stream)
    return True


def committed(folder: Path) -> list[StageRun]:
    """Read the stage runs that the file names; none without the file."""
    return stage_runs_in(_lines(folder / NAME), where=NAME)


def _digest_lock(
    workspace: Workspace, entries: Sequence[LockEntry], made: Made, stat_cache: StatCache
) -> str:
    """One hash of the lock file and of everything that it states."""
    produced = {record.path: record.digest for stage in made.values() for record in stage.values()}
    facts = [
        [
            entry.name,
            entry.cmd,
            [
                [dep, produced.get(dep) or _digest_dependency(workspace, dep, stat_cache)]
                for dep in entry.deps
            ],
            dict(entry.params),
            [[out, produced[out]] for out in entry.outs],
        ]
        for entry in entries
    ]
    lock = sha256_of_file(workspace.recipe_dir / LOCK_FILE)
    return sha256_of(sorted_json([lock, facts], as_text=True))


def _digest_dependency(workspace: Workspace, relative: str, stat_cache: StatCache) -> str:
    return digest_path(Path(workspace.recipe_dir, relative), cache=stat_cache).sha256


def _maker(stood: StageRun | None, record: StageRun | None, ledger: Ledger) -> StageRun | None:
    """The stage run that stands for a stage: that of the file, unless it made something else."""
    if record is None or (stood is not None and _same(stood, record)):
        return stood
    return ledger.succeeded(record.key)


def _same(one: StageRun, other: StageRun) -> bool:
    made = [[(each.path, each.digest) for each in run.outputs] for run in (one, other)]
    return one.key == other.key and made[0] == made[1]


def _lines(path: Path) -> list[str]:
    """The lines of the file; none where it is not."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise UserError(f"{path} is not text; restore it with git checkout") from None
    if any(line.startswith(_CONFLICT) for line in lines):
        raise UserError(
            f"{path} holds a merge conflict; take one side of it whole, such as by"
            f" `git checkout --ours {NAME}`: the next run brings it up to date"
        )
    return lines
