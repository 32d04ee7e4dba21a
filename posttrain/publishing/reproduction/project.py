"""Run a recipe in a project of its own: no server, no tracker, nothing that another run left.

Also the artifacts that it is given: from the workspace where they still lie, else from DVC's cache.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from posttrain.methods.find import FOLDER as METHODS
from posttrain.pipeline.execution.session import Session
from posttrain.pipeline.hermetic.environment import FIXED, passed
from posttrain.provenance.dvc import DvcStore
from posttrain.provenance.git import require_git
from posttrain.provenance.ledger import ArtifactRecord, StageRun, read_ledger
from posttrain.provenance.ledger.location import RECIPE_FILE, STATE_DIR
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.stage.errors import UserError, masked
from posttrain.stage.hashing import StatCache, digest_path

_DVC_CONFIG = "[core]\n    analytics = false\n    autostage = false\n    check_update = false\n"
_LEFT_OUT = ("POSTTRAIN_LEDGER", "PYTHONPATH")
_SECRET = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH", re.IGNORECASE)


def make_project(root: Path) -> None:
    """Turn a folder into a project that keeps its artifacts and its ledger to itself."""
    (root / ".dvc").mkdir(parents=True, exist_ok=True)
    (root / ".dvc" / "config").write_text(_DVC_CONFIG, encoding="utf-8")
    require_git(root, "init", "--quiet", purpose="the folder is no project yet")


def run_recipe(
    root: Path, recipe: Path, *options: str, environment: Mapping[str, str] | None = None
) -> int:
    """`posttrain run` on a recipe folder of the project, its progress shown; the exit status."""
    place = recipe.relative_to(root).as_posix()
    done = subprocess.run(
        command_line(place, options),
        cwd=root,
        env=clean_environment() if environment is None else environment,
        check=False,
        stdout=subprocess.DEVNULL,
    )
    return done.returncode


def command_line(place: str, options: Sequence[str] = ()) -> list[str]:
    """What runs a recipe without any server."""
    return [sys.executable, "-m", "posttrain", "run", place, "--local", *options]


def last_run(root: Path) -> dict[str, StageRun]:
    """What the newest run of the project made, by stage; empty where it never came to run."""
    at = root / STATE_DIR / "ledger.db"
    if not at.is_file():
        return {}
    with read_ledger(at) as ledger:
        runs = ledger.runs(1)
        return {run.stage: run for run in ledger.stage_runs(runs[0].id)} if runs else {}


def clean_environment() -> dict[str, str]:
    """Our own environment without what would lead to another project's state."""
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    return kept | {"POSTTRAIN_TRACKING": "off", "PYTHONDONTWRITEBYTECODE": "1"}


def foreign_environment(given: Collection[str] = ()) -> dict[str, str]:
    """Return what code from elsewhere is given of our environment: no token, key or password.

    These are the variables that stages see, as they say where things lie and how to compute.

    Args:
        given: Names of variables that it is given all the same.

    Returns:
        The variables.

    """
    present = clean_environment()
    known = passed(present, FIXED, networked=True)
    return {
        name: value
        for name, value in present.items()
        if name in given or (name in known and not _is_secret(name, value))
    }


def _is_secret(name: str, value: str) -> bool:
    named = _SECRET.search(name.removeprefix("TOKENIZERS_")) is not None
    return named or masked(value) != value


class Restorer:
    """Finds artifacts in place or brings them into a temporary folder, checked by digest."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._folder = folder
        self._finder = Finder(root)
        self._store = DvcStore(root, root)

    def __call__(self, artifact: ArtifactRecord, name: str | None = None) -> Path:
        """Where the artifact's bytes are; refuses where they are nowhere."""
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
            " nor in the DVC cache; `dvc fetch` them, or name a run whose artifacts are kept"
        )

    def place(self, artifact: ArtifactRecord, target: Path) -> None:
        """Put a copy of the artifact at `target`, whatever was there."""
        if target.is_dir():
            shutil.rmtree(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        found = self(artifact, f"{artifact.digest[:16]}{target.suffix}")
        copy = shutil.copytree if found.is_dir() else shutil.copyfile
        copy(found, target)


class Mirror:
    """A temporary project with the code of this one, its recipe, and nothing that it ever made.

    At the same depth as the original, so that `../` in a recipe leads to the same names.
    """

    def __init__(self, session: Session, folder: Path) -> None:
        self._folder = folder
        self.root = self._below(session.workspace.root)
        self.recipe = self._below(session.workspace.recipe_dir)
        make_project(self.root)
        self._copy_code(session)
        self._link_sources(session)
        self.recipe.mkdir(parents=True, exist_ok=True)
        recipe = {
            "format": session.recipe.format,
            "flow": session.recipe.flow,
            "method": session.recipe.method or None,
            "plugins": list(session.recipe.plugins),
            "run": session.recipe.run.model_dump(mode="json"),
            "rounds": session.recipe.rounds,
            "profile": session.recipe.profile.name,
            **session.recipe.declared.model_dump(mode="json"),
            **session.recipe.sections,
        }
        # JSON is YAML, and says every value as it is.
        text = json.dumps(recipe, indent=1, default=str)
        (self.recipe / RECIPE_FILE).write_text(text + "\n", encoding="utf-8")

    def place_inputs(self, restore: Restorer, record: StageRun) -> None:
        """Put what other stages made for this one where it will read it."""
        for artifact in record.inputs:
            if artifact.producer is not None:
                restore.place(artifact, self.recipe / artifact.path)

    def run(self, *options: str) -> dict[str, StageRun]:
        """Run the recipe; what it made by stage, empty where it failed."""
        status = run_recipe(self.root, self.recipe, *options)
        return {} if status else last_run(self.root)

    def _below(self, path: Path) -> Path:
        return self._folder.joinpath(*Path(os.path.normpath(path)).parts[1:])

    def _copy_code(self, session: Session) -> None:
        """Copy packages, and what else the stages' keys name: a link would lead out of the view."""
        root = session.workspace.root
        for package in (root / name for name in session.workspace.packages()):
            if package.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(package, self.root / package.name, ignore=ignored)
        if session.recipe.method and (root / METHODS).is_dir():
            shutil.copytree(root / METHODS, self.root / METHODS, dirs_exist_ok=True)
        for file in {*root.glob("*.py"), *session.planner.keys.files()}:
            place = self.root / file.relative_to(root)
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, place)

    def _link_sources(self, session: Session) -> None:
        """Files from outside the DAG, at the place where the recipe will look for them."""
        for stage in session.dag.stages.values():
            for reference in stage.inputs.values():
                if reference.path is None:
                    continue
                link = self._below(reference.path)
                link.parent.mkdir(parents=True, exist_ok=True)
                if not link.exists():
                    link.symlink_to(reference.path.resolve())
