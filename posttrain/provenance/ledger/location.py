"""Where a project's ledger is, a file or a server, and its recipes, from whose folders it says."""

import os
from collections.abc import Iterator
from pathlib import Path

from posttrain.stage.errors import UserError

ENVIRONMENT = "POSTTRAIN_LEDGER"
STATE_DIR = ".posttrain"
RECIPE_FILE = "recipe.yaml"
PARAMS_FILE = "params.yaml"
REPORT_FILE = "report.html"


def ledger_location(root: Path) -> str:
    """Path or URL of the ledger of the project at `root`; the environment overrides it.

    Args:
        root: The project.

    Returns:
        What `open_ledger` takes.

    Raises:
        UserError: The environment names a file in a folder that is not there: nobody means a new
            ledger, in which nothing ever ran, by a typo.

    """
    given = os.environ.get(ENVIRONMENT)
    if given and ("://" not in given or given.startswith("sqlite:")):
        folder = Path(given.removeprefix("sqlite:///")).parent
        if not folder.is_dir():
            raise UserError(
                f"{ENVIRONMENT}: there is no folder {folder}; make it, or correct the path"
            )
    return given or str(root / STATE_DIR / "ledger.db")


def project_root(start: Path) -> Path:
    """The nearest folder at or above `start` that is a project."""
    for folder in (start, *start.parents):
        if (folder / ".dvc").is_dir():
            return folder
    raise UserError(
        f"{start} is not inside a posttrain project (no .dvc folder above it); "
        "run the command in a clone of the project, or begin one: posttrain init DIR"
    )


def recipe_folder(root: Path, recipe: str) -> str:
    """Guess the folder of a recipe by its name, for runs that noted none.

    Args:
        root: The project.
        recipe: Its folder in recipes/, or the name of its flow.

    Returns:
        The folder in recipes/, from the root; `.` where there is none of that name.

    """
    return f"recipes/{recipe}" if (root / "recipes" / recipe).is_dir() else "."


def recipe_folders(root: Path) -> Iterator[Path]:
    """Yield the folders from which paths of artifacts may be recorded, the likeliest first.

    Args:
        root: The project.

    Yields:
        The root and what is in recipes/, also where a recipe is gone; then every other folder
        with a recipe, but for hidden ones and those below a `data`.

    """
    usual = [root, *sorted(root.glob("recipes/*"))]
    yield from usual
    for name, below, files in os.walk(root):
        below[:] = sorted(each for each in below if not each.startswith(".") and each != "data")
        if RECIPE_FILE in files and Path(name) not in usual:
            yield Path(name)
