"""Where the ledger of a project is: a file beside the rest of the run state, or a server."""

import os
from pathlib import Path

from posttrain.stage.errors import UserError

ENVIRONMENT = "POSTTRAIN_LEDGER"
STATE_DIR = ".posttrain"


def ledger_location(root: Path) -> str:
    """Path or URL of the ledger of the project at `root`; the environment overrides it."""
    return os.environ.get(ENVIRONMENT) or str(root / STATE_DIR / "ledger.db")


def project_root(start: Path) -> Path:
    """The nearest folder at or above `start` that is a project."""
    for folder in (start, *start.parents):
        if (folder / ".dvc").is_dir():
            return folder
    raise UserError(
        f"{start} is not inside a posttrain project (no .dvc folder above it); "
        "run the command in a clone of the project"
    )
