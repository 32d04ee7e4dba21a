"""Begin a run: what the ledger notes of it, and the files that say what it was asked for."""

import shutil
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posttrain.pipeline.execution.supervise import StageProcesses
from posttrain.pipeline.generate import params_text
from posttrain.pipeline.plan import Decision, Planner
from posttrain.provenance.git import revision_of
from posttrain.provenance.ledger import Run
from posttrain.provenance.ledger.location import PARAMS_FILE, RECIPE_FILE
from posttrain.provenance.ledger.origins import RunOrigin, note_origin, origin_of


@dataclass(frozen=True)
class BegunRun:
    """A run that has begun.

    Args:
        run: Its record.
        origin: Who started it, and what its recipe states.
        files: Its recipe and its parameters, kept with its logs.

    """

    run: Run
    origin: RunOrigin
    files: tuple[Path, ...]


def begin_run(planner: Planner, command: str) -> BegunRun:
    """Note in the ledger that a run of the recipe begins, at which commit, by which command."""
    recipe, workspace = planner.recipe, planner.workspace
    revision = revision_of(workspace.root)
    run = Run(
        id=time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + uuid.uuid4().hex[:6],
        recipe=recipe.name,
        started=time.time(),
        command=command,
        git_commit=revision.commit,
        git_dirty=revision.dirty,
        overrides={name: str(value) for name, value in recipe.overrides.items()},
        actor=workspace.actor,
    )
    planner.ledger.begin_run(run, folder=workspace.folder)
    origin = origin_of(workspace.root, recipe.stated())
    note_origin(planner.ledger.annotations, run.id, origin)
    return BegunRun(run, origin, _keep_recipe(planner, workspace.run_dir(run.id)))


def _keep_recipe(planner: Planner, folder: Path) -> tuple[Path, ...]:
    """Recipe and parameters as they are now: both files may say something else tomorrow."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe, params = folder / RECIPE_FILE, folder / PARAMS_FILE
    shutil.copyfile(planner.recipe.path, recipe)
    params.write_text(params_text(planner.recipe, planner.dag), encoding="utf-8")
    return recipe, params


def warm_processes(planner: Planner, decisions: Sequence[Decision]) -> StageProcesses:
    """Start the server that stages are forked from, with the libraries that these will need."""
    running = [each.stage for each in decisions if each.action != "cached"]
    packages = frozenset[str]().union(*map(planner.own_packages, running))
    run = planner.recipe.run
    processes = StageProcesses(run.threads, kernels=run.kernels, packages=packages)
    processes.warm()
    return processes
