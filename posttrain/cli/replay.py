"""`posttrain replay`: retrain a learner from its stored rollouts, and compare the weights."""

import importlib
import importlib.util
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli.ledger import existing_ledger, ledger_option, workspace_root
from posttrain.errors import UserError

if TYPE_CHECKING:
    from posttrain.pipeline.ledger import Ledger, StageRun
    from posttrain.pipeline.ledger.records import ArtifactRecord


@dataclass(frozen=True)
class Outcome:
    """Digests of the weights that a stage run stored, and of those that its rollouts lead to."""

    stage_run: str
    stage: str
    run: str
    stored: str
    replayed: str

    @property
    def equal(self) -> bool:
        """Whether they are the same weights, bit for bit."""
        return self.stored == self.replayed


@click.command(
    epilog="""
\b
Examples:
  posttrain replay latest
  posttrain replay rl@latest
  posttrain replay rl@20261121-032733-f300bd --json
"""
)
@click.argument("name", metavar="RUN|STAGE@RUN")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line per stage.")
@ledger_option
def replay(name: str, as_json: bool, ledger_at: str | None) -> None:
    """Retrain from the stored rollouts alone, and say whether the weights are the same (L2).

    Nothing is sampled and no answer is judged: starting policy and rollouts come from the
    workspace or the DVC cache by their digests, the learner runs in a temporary folder with the
    run's own parameters and seed and the code as it is now. Exits with 0 if every digest is
    equal, and with 1 if one differs.
    """
    root = workspace_root(ledger_at)
    # A project brings tasks of its own.
    sys.path.insert(0, str(root))
    with existing_ledger(ledger_at) as ledger:
        records = _replayable(ledger, name, root)
    outcomes = []
    for record in records:
        outcome = _replay(record, root)
        outcomes.append(outcome)
        click.echo(
            json.dumps(asdict(outcome) | {"equal": outcome.equal}) if as_json else _say(outcome)
        )
    if not all(outcome.equal for outcome in outcomes):
        sys.exit(1)


def _say(outcome: Outcome) -> str:
    verdict = (
        "equal: the stored rollouts alone lead to the same weights (L2)"
        if outcome.equal
        else "different: the code, the machine or the environment is not that of the run"
    )
    return (
        f"{outcome.stage} of run {outcome.run}\n"
        f"  stored    {outcome.stored}\n"
        f"  replayed  {outcome.replayed}\n"
        f"  {verdict}"
    )


def _replayable(ledger: "Ledger", name: str, root: Path) -> "list[StageRun]":
    """The executions behind a run's stages that store rollouts, or the one behind STAGE@RUN."""
    from posttrain.lineage.names import find_node, find_run

    names = [name]
    if "@" not in name:
        run = find_run(ledger, name)
        made = {record.stage: record for record in ledger.stage_runs(run.id)}
        names = [f"{stage}@{run.id}" for stage, record in made.items() if _has_replay(record.task)]
        if not names:
            raise UserError(f"run {run.id} has no stage that stores rollouts to replay")
    found = [find_node(ledger, each, root=root, cwd=Path.cwd()) for each in names]
    records = [ledger.stage_run(selected.id) for selected in found]
    for each, record in zip(names, records, strict=True):
        if record is None or not _has_replay(record.task):
            raise UserError(f"{each} stores no rollouts to replay; name a stage such as rl@latest")
    return [record for record in records if record is not None]


def _has_replay(task: str) -> bool:
    known = importlib.util.find_spec(task.partition(".")[0]) is not None
    return known and importlib.util.find_spec(f"{task}.replay") is not None


def _replay(record: "StageRun", root: Path) -> Outcome:
    """Restore inputs and rollouts, and learn again in this process."""
    from posttrain.execution.determinism import derived_seed, make_deterministic

    runtime = record.components["runtime"]
    seed, threads = derived_seed(int(runtime["seed"]), record.stage), int(runtime["threads"])
    make_deterministic(seed, threads)
    from posttrain.models.load import load_policy, weights_digest
    from posttrain.pipeline.context import StageContext

    task = importlib.import_module(record.task).TASK
    try:
        config = task.config.parse(parameters(record.components["params"]), where=record.stage)
    except UserError as error:
        raise UserError(
            f"{record.stage} of run {record.run_id} has parameters that the code of today does not"
            f" know ({error}); check out the commit of that run to replay it"
        ) from None
    outputs = {artifact.role: artifact for artifact in record.outputs}
    with tempfile.TemporaryDirectory(prefix="posttrain-replay-") as folder:
        restore = _Restorer(root, Path(folder))
        inputs = {
            artifact.role: restore(artifact)
            for artifact in record.inputs
            if artifact.role in ("policy", "reference")
        }
        rollouts = restore(outputs["rollouts"], "stored-rollouts")
        stored = weights_digest(load_policy(restore(outputs["policy"], "stored-policy")).model)
        context = StageContext(seed, threads, runtime["device"], Path(folder))
        again = importlib.import_module(f"{record.task}.replay").replay
        replayed = again(config, inputs, rollouts, context)
    return Outcome(record.id, record.stage, record.run_id, stored, replayed)


class _Restorer:
    """Brings artifacts into a temporary folder, or finds them in place, checked by digest."""

    def __init__(self, root: Path, folder: Path) -> None:
        from posttrain.lineage.artifacts import Finder
        from posttrain.pipeline.digest import StatCache
        from posttrain.pipeline.dvc import DvcStore
        from posttrain.pipeline.ledger.location import STATE_DIR

        self._folder = folder
        self._finder = Finder(root, StatCache.load(root / STATE_DIR / "digests.json"))
        self._store = DvcStore(root, root)

    def __call__(self, artifact: "ArtifactRecord", name: str | None = None) -> Path:
        """Where the artifact's bytes are; refuses where they are nowhere."""
        from posttrain.pipeline.digest import StatCache, digest_path

        found = self._finder.find(artifact.path, artifact.digest, artifact.md5)
        if found is not None:
            return found
        out = self._folder / (name or artifact.role)
        if artifact.md5 is not None and self._store.restore(out, artifact.md5):
            cache = StatCache.load(self._folder / "digests.json")
            if digest_path(out, cache=cache).sha256 == artifact.digest:
                return out
        raise UserError(
            f"the bytes of {artifact.path} ({artifact.digest[:12]}) are neither in the workspace"
            " nor in the DVC cache; `dvc fetch` them, or replay a run whose artifacts are kept"
        )


def parameters(flat: Mapping[str, str]) -> dict[str, Any]:
    """Nested parameters from the ledger's dotted names.

    >>> parameters({'rate': '0.1', 'draw.sources."a.b"': '2', 'draw.rounds': '1'})
    {'rate': 0.1, 'draw': {'sources': {'a.b': 2}, 'rounds': 1}}
    """
    nested: dict[str, Any] = {}
    for name, text in flat.items():
        place, keys = nested, _keys(name)
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place[keys[-1]] = json.loads(text)
    return nested


def _keys(name: str) -> list[str]:
    """Cut a dotted name; a part that holds a dot itself stands in JSON quotes."""
    keys: list[str] = []
    while name:
        if name.startswith('"'):
            key, end = json.JSONDecoder().raw_decode(name)
            name = name[end + 1 :]
        else:
            key, _, name = name.partition(".")
        keys.append(key)
    return keys
