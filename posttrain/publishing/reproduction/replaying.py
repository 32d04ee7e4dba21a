"""Retrain learners from their stored rollouts alone, and compare the weights (L2)."""

import importlib
import importlib.util
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.pipeline.execution.display import Display
from posttrain.pipeline.recipe_formats import parse_recorded
from posttrain.pipeline.slots import parts_in_code
from posttrain.provenance.circumstances import circumstances_here, differences
from posttrain.provenance.key import nested
from posttrain.provenance.ledger import Ledger, StageRun
from posttrain.publishing.reproduction.project import Restorer
from posttrain.stage.config import StageConfig
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.slots import Plugins, plugged

_READ_AGAIN = frozenset({"policy", "policies", "reference", "episodes", "rehearsals"})
"""Ports of what a learner reads when it learns again: everything else is in the rollouts."""


@dataclass(frozen=True)
class ReplayOutcome:
    """Digests of the weights that a stage run stored, and of those that its rollouts lead to.

    `policy` is the digest of the artifact, its files with config and tokenizer, and `path` where it
    was made: `posttrain status` and the lineage know it by these.
    """

    stage_run: str
    stage: str
    run: str
    stored: str
    replayed: str
    policy: str
    path: str
    apart: tuple[str, ...] = ()
    """How the stage run computed otherwise than this process, so that bytes may differ."""

    @property
    def equal(self) -> bool:
        """Return whether they are the same weights, bit for bit."""
        return self.stored == self.replayed


def replayable(ledger: Ledger, name: str, root: Path) -> list[StageRun]:
    """The executions behind a run's stages that store rollouts, or the one behind STAGE@RUN."""
    from posttrain.provenance.lineage.names import find_node, find_run

    names = [name]
    if "@" not in name:
        run = find_run(ledger, name)
        made = {record.stage: record for record in ledger.stage_runs(run.id)}
        names = [f"{stage}@{run.id}" for stage, record in made.items() if has_replay(record.task)]
        if not names:
            raise UserError(f"run {run.id} has no stage that stores rollouts to replay")
    found = [find_node(ledger, each, root=root, cwd=Path.cwd()) for each in names]
    records = [ledger.stage_run(selected.id) for selected in found]
    for each, record in zip(names, records, strict=True):
        if record is None or not has_replay(record.task):
            raise UserError(f"{each} stores no rollouts to replay; name a stage such as rl@latest")
    return [record for record in records if record is not None]


def has_replay(task: str) -> bool:
    """Say of a task whether it can learn again from what it stored: it has a `replay`."""
    try:
        return importlib.util.find_spec(f"{task}.replay") is not None
    except ModuleNotFoundError:
        return False


def learn_again(
    stage: str,
    task: str,
    runtime: Mapping[str, str],
    prepare: Callable[[], tuple[StageConfig, Mapping[str, Path], Path]],
    **context: Any,
) -> str:
    """Retrain a learner from stored rollouts in this process.

    Args:
        stage: Its name, from which its seed derives.
        task: Its package, which has a `replay`.
        runtime: Seed, threads and device, as its key has them.
        prepare: Gives its config, its models by role and the rollouts; called once it is seeded.
        context: More of its `StageContext`.

    Returns:
        The digest of the weights.

    """
    from posttrain.pipeline.determinism import make_deterministic, stage_seed

    seed, threads = stage_seed(runtime, stage), int(runtime["threads"])
    portable = runtime.get("kernels") == "portable"
    make_deterministic(seed, threads, "portable" if portable else "fast")
    config, models, rollouts = prepare()
    replay = importlib.import_module(f"{task}.replay").replay
    given = StageContext(seed, threads, runtime["device"], **context)
    return str(replay(config, models, rollouts, given))


def replay_stage(record: StageRun, root: Path, display: Display) -> ReplayOutcome:
    """Restore inputs and rollouts, and learn again in this process."""

    def show(event: Mapping[str, Any]) -> None:
        if event["kind"] == "progress":
            display.progress(record.stage, event["done"], event["total"], event["unit"])

    outputs = {artifact.role: artifact for artifact in record.outputs}
    with tempfile.TemporaryDirectory(prefix="posttrain-replay-") as folder:
        restore = Restorer(root, Path(folder))

        def prepare() -> tuple[StageConfig, Mapping[str, Path], Path]:
            models = {
                artifact.role: restore(artifact)
                for artifact in record.inputs
                if artifact.role.partition(".")[0] in _READ_AGAIN
            }
            return recorded_config(record), models, restore(outputs["rollouts"], "stored-rollouts")

        replayed = learn_again(
            record.stage,
            record.task,
            record.components["runtime"],
            prepare,
            scratch=Path(folder),
            emit=show,
        )
        from posttrain.learning.models.load import load_policy, weights_digest

        stored = weights_digest(load_policy(restore(outputs["policy"], "stored-policy")).model)
    policy = outputs["policy"]
    # What was imported before it could be bound: no learner computes with it.
    others = ("numpy", "openblas")
    here, there = (
        {name: value for name, value in each.items() if name not in others}
        for each in (
            circumstances_here(record.components["runtime"]["device"]),
            record.circumstances,
        )
    )
    apart = tuple(differences(there, here))
    return ReplayOutcome(
        record.id, record.stage, record.run_id, stored, replayed, policy.digest, policy.path, apart
    )


def recorded_config(record: StageRun) -> StageConfig:
    """Read the parameters that a stage ran with, in today's spelling and with its plug-ins' parts.

    Args:
        record: The stage as the ledger has it, of this version or an older one.

    Returns:
        The config of its task.

    Raises:
        UserError: The task of today does not know one of them, or a plug-in's file is gone.

    """
    task = importlib.import_module(record.task).TASK
    try:
        with plugged(lambda: _parts_of(record)):
            return parse_recorded(task, nested(record.components["params"]), where=record.stage)
    except UserError as error:
        raise UserError(
            f"{record.stage} of run {record.run_id} has parameters that the code of today does not"
            f" know ({error}); check out the commit of that run to replay it"
        ) from None


def _parts_of(record: StageRun) -> Plugins:
    """The parts of plug-ins that a stage ran with."""
    try:
        return parts_in_code(record.components["code"])
    except ImportError as error:
        raise UserError(f"its plug-in cannot be imported: {error}") from None
