"""A workspace of its own for each schedule: a git worktree that shares the project's DVC cache.

A scheduled run runs a commit, the one that the project has checked out when the run starts.
Uncommitted edits are left out, and said; the worktree stays between runs, so that what is up to
date there needs no restoring.
"""

import configparser
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.provenance.git import require_git
from posttrain.provenance.ledger.location import RECIPE_FILE
from posttrain.stage.errors import UserError, first_line

STATE = Path(".posttrain/worktrees")
_LONGEST_PATH = 1000


@dataclass(frozen=True)
class Checkout:
    """Where a run runs, which commit it is, and which edits are not in it."""

    root: Path
    commit: str
    left_out: tuple[str, ...]


def head(root: Path) -> str:
    """The commit that the project has checked out."""
    return _answer(root, "rev-parse", "HEAD")


def prepare(root: Path, name: str) -> Checkout:
    """Bring the worktree of schedule `name` to the commit that `root` is at."""
    commit = head(root)
    place = root / STATE / name / "tree"
    if (place / ".git").exists():
        _answer(place, "checkout", "-q", "--force", "--detach", commit)
    else:
        _answer(root, "worktree", "prune")
        _answer(root, "worktree", "add", "-q", "--force", "--detach", str(place), commit)
    project = place / _answer(root, "rev-parse", "--show-prefix")
    _share_cache(root, project)
    changed = _answer(root, "status", "--porcelain", "--untracked-files=no").splitlines()
    return Checkout(project, commit, tuple(line[2:].strip() for line in changed))


def link_inputs(root: Path, project: Path, recipe: str, watched: Sequence[str] = ()) -> None:
    """Let files that the recipe names and git does not have appear where the recipe expects them.

    That is every text of the recipe which is a path in the project and none in the worktree, and
    each file that the schedule watches.
    """
    file = Path(recipe) / RECIPE_FILE
    given = parse_recipe((project / file).read_bytes(), file.as_posix())
    places = {f"{recipe}/{text}" for text in _texts(given) if not text.startswith("/")}
    places |= {item.removeprefix("file:") for item in watched if item.startswith("file:")}
    for place in places:
        source = Path(os.path.normpath(root / place))
        target = Path(os.path.normpath(project / place))
        if root / STATE in target.parents and source not in target.parents:
            _stand_in(source, target)


def _stand_in(source: Path, target: Path) -> None:
    """Let `target` read as `source`, unless the commit has something of its own there.

    A folder is made anew, with a link to each file: what is read is hashed file by file, and a
    link to a folder is refused there. Links that are right stay, as another run may read them.
    """
    if not source.is_dir():
        if source.is_file() and not target.exists():
            _link(source, target)
        return
    if target.is_symlink():
        target.unlink()
    if target.exists() and not _is_made_of_links(target, source):
        return
    target.mkdir(parents=True, exist_ok=True)
    wanted = set(_files_below(source))
    for name in set(_files_below(target)) - wanted:
        (target / name).unlink()
    for name in wanted:
        if not (target / name).is_symlink():
            _link(source / name, target / name)


def _is_made_of_links(target: Path, source: Path) -> bool:
    files = (target / name for name in _files_below(target))
    return all(path.is_symlink() and source in path.readlink().parents for path in files)


def _files_below(folder: Path) -> Iterator[Path]:
    """Relative paths of all files, and of links to folders, which are not followed."""
    for place, folders, files in os.walk(folder):
        inner = Path(place)
        links = [name for name in folders if (inner / name).is_symlink()]
        yield from ((inner / name).relative_to(folder) for name in (*files, *links))


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.symlink_to(source)


def parse_recipe(text: bytes, name: str) -> dict[str, Any]:
    """The values of a recipe of this commit; a UserError where it is no YAML or no mapping."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        values = YAML(typ="safe").load(text.decode())
    except (YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{name} of this commit is not valid YAML: {first_line(error)}") from None
    if not isinstance(values, dict):
        raise UserError(
            f"{name} of this commit: a recipe is a mapping of sections, starting with 'flow:'"
        )
    return values


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str) and len(value) < _LONGEST_PATH and "\0" not in value:
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def record(project: Path, message: str) -> None:
    """Commit what a run changed of the tracked files: a release is of a commit that says it all.

    The commit is on no branch; the release's tag is what keeps it.
    """
    if _answer(project, "status", "--porcelain", "--untracked-files=no"):
        _answer(project, "commit", "-q", "--no-verify", "--all", "-m", message)


def shared(root: Path) -> dict[str, str]:
    """Environment of a run in a worktree: the project's own ledger, journal and MLflow."""
    state = root / ".posttrain"
    defaults = {
        "POSTTRAIN_LEDGER": str(state / "ledger.db"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{state / 'mlflow.db'}",
    }
    return {name: os.environ.get(name, value) for name, value in defaults.items()}


def _share_cache(root: Path, project: Path) -> None:
    """One cache for all: what one run made, no other makes again, and gc sees it all."""
    settings = configparser.ConfigParser(interpolation=None)
    local = root / ".dvc" / "config.local"
    settings.read([root / ".dvc" / "config"])
    known = settings.get("cache", "dir", fallback="cache")
    own = configparser.ConfigParser(interpolation=None)
    own.read([local])
    known = own.get("cache", "dir", fallback=known)
    if not own.has_section("cache"):
        own.add_section("cache")
    own.set("cache", "dir", str((root / ".dvc" / Path(known).expanduser()).resolve()))
    (project / ".dvc").mkdir(exist_ok=True)
    with (project / ".dvc" / "config.local").open("w", encoding="utf-8") as file:
        own.write(file)


def _answer(root: Path, *arguments: str) -> str:
    return require_git(root, *arguments, purpose="scheduled runs need git").strip()
