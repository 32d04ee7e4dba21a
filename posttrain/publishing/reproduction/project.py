"""Run a recipe in a project of its own: no server, no tracker, nothing that another run left."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from posttrain.provenance.git import require_git
from posttrain.provenance.ledger import StageRun, open_ledger
from posttrain.provenance.ledger.location import STATE_DIR

_DVC_CONFIG = "[core]\n    analytics = false\n    autostage = false\n    check_update = false\n"
_LEFT_OUT = ("POSTTRAIN_LEDGER", "PYTHONPATH")


def make_project(root: Path) -> None:
    """Turn a folder into a project that keeps its artifacts and its ledger to itself."""
    (root / ".dvc").mkdir(parents=True, exist_ok=True)
    (root / ".dvc" / "config").write_text(_DVC_CONFIG, encoding="utf-8")
    require_git(root, "init", "--quiet", purpose="the folder is no project yet")


def run_recipe(root: Path, recipe: Path, *options: str) -> int:
    """`posttrain run` on a recipe folder of the project, its progress shown; the exit status."""
    place = recipe.relative_to(root).as_posix()
    done = subprocess.run(
        command_line(place, options),
        cwd=root,
        env=clean_environment(),
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
    with open_ledger(at, create=False) as ledger:
        runs = ledger.runs(1)
        return {run.stage: run for run in ledger.stage_runs(runs[0].id)} if runs else {}


def clean_environment() -> dict[str, str]:
    """Our own environment without what would lead to another project's state."""
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    return kept | {"POSTTRAIN_TRACKING": "off", "PYTHONDONTWRITEBYTECODE": "1"}
