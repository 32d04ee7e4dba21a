"""`posttrain run --watch`: wait until a recipe, its code or its inputs change, then run again."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.pipeline.execution.session import Session

_LOOK_SECONDS = 1.0
_SUFFIXES = frozenset({".py", ".yaml", ".yml", ".tsv", ".csv", ".jsonl", ".jinja"})
_AWAY = frozenset({".git", ".dvc", ".venv", ".posttrain", "__pycache__", "node_modules", "plots"})
_GENERATED = frozenset({"dvc.yaml", "params.yaml", "metrics.json", "posttrain.lock", "dvc.lock"})

WatchedFiles = Mapping[Path, tuple[int, int]]
"""Time of change and size of each file that is watched."""


def places_of(session: "Session") -> list[Path]:
    """Name what a change of may make a stage run: recipe, first-party code, files from outside.

    Args:
        session: Of the recipe.

    Returns:
        Files and folders, there or not.

    """
    root, folder = session.workspace.root, session.recipe.directory
    packages = [root / name for name in session.workspace.packages()]
    places = [session.recipe.path, folder / "methods", root / "methods", *packages]
    stages = session.dag.stages.values()
    return places + [Path(ref.path) for each in stages for ref in each.inputs.values() if ref.path]


def watched(places: Sequence[Path]) -> WatchedFiles:
    """Look at the files in some places as they are now."""
    return {path: _stat(path) for place in places for path in _files(place)}


def _files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
    for path in place.rglob("*") if place.is_dir() else ():
        wanted = path.suffix in _SUFFIXES and path.name not in _GENERATED
        if wanted and not _AWAY & {*path.relative_to(place).parts}:
            yield path


def _stat(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def run_on_changes(recipe: Path, overrides: Sequence[str], once: Callable[[], None]) -> None:
    """Run, and run again after every change, until the user ends it; what fails is said.

    Args:
        recipe: Of the command line.
        overrides: Of the command line.
        once: Runs it.

    """
    from posttrain.pipeline.execution.session import open_session

    # A recipe that cannot be read is watched where it was read the last time.
    places = [recipe / "recipe.yaml" if recipe.is_dir() else recipe]
    while True:
        seen = watched(places)
        try:
            with open_session(recipe, overrides) as session:
                places = places_of(session)
            seen = watched(places)
            once()
        except (UserError, click.ClickException) as error:
            said = error.format_message() if isinstance(error, click.ClickException) else error
            click.echo(f"error: {said}", err=True)
        for path in await_change(places, seen):
            click.echo(f"changed: {os.path.relpath(path)}", err=True)


def await_change(places: Sequence[Path], seen: WatchedFiles) -> list[Path]:
    """Wait until something that is watched changed, and then until it stood still for a moment.

    Args:
        places: What is watched.
        seen: What was there when it last ran.

    Returns:
        What changed, came or went.

    """
    click.echo("watching the recipe, its code and its inputs; Ctrl+C ends it", err=True)
    now = seen
    while True:
        time.sleep(_LOOK_SECONDS)
        before, now = now, watched(places)
        changed = [path for path in {**seen, **now} if seen.get(path) != now.get(path)]
        if changed and before == now:
            return sorted(changed)
