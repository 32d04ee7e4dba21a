"""Write the files of a new project into an empty folder, all of them or none."""

import os
import re
import shutil
import subprocess
import sys
import uuid
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

import posttrain
from posttrain.operations.project.data_recipe import BroughtData, recipe_for
from posttrain.operations.project.versions import WHEELS, constraints, installed_origin
from posttrain.provenance.git import ask_git, require_git
from posttrain.stage.errors import UserError

_SUFFIX = ".tmpl"
_GENERATED = ("dvc.yaml", "params.yaml")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
# Names that a wheel or a copy would lose if the templates themselves had them.
_RENAMED = {"gitignore": ".gitignore", "dvcignore": ".dvcignore", "dvc": ".dvc"}


def create(folder: Path, data: BroughtData | None = None) -> list[str]:
    """Make a project.

    Args:
        folder: Where it is to be; empty, or not there yet.
        data: A file that it is for; without one it is an example that runs in a minute.

    Returns:
        Its files.

    Raises:
        UserError: It cannot be put there, or the file cannot be learned from.

    """
    folder = folder.absolute()
    refuse(folder)
    texts = {
        name: text.replace("@name@", folder.name).replace("@version@", posttrain.__version__)
        for name, text in (_templates() if data is None else _templates_for_data()).items()
    }
    if data is not None:
        texts["recipe.yaml"] = recipe_for(data, folder)
    texts["constraints.txt"] = constraints()
    source = installed_origin()
    texts["requirements.txt"] = texts["requirements.txt"].replace("@posttrain@", source.lines)
    if source.local:
        texts[f"{WHEELS}/.gitkeep"] = ""
    carried = {f"{WHEELS}/{source.wheel.name}": source.wheel} if source.wheel else {}
    # Beside its place, so that it appears there whole.
    partial = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.partial")
    try:
        _write(partial, texts)
        for name, wheel in carried.items():
            shutil.copy(wheel, partial / name)
        _generate(partial)
        if folder.is_dir():
            folder.rmdir()
        partial.rename(folder)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return sorted([*texts, *_GENERATED, *carried])


def refuse(folder: Path) -> None:
    """Raise a `UserError` where no project can be put at `folder`."""
    if _NAME.fullmatch(folder.name) is None:
        raise UserError(
            f"'{folder.name}' is no name for a project; use letters, digits, '-', '_' and '.', "
            "a letter first"
        )
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder that is empty or not there yet")
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty; name a folder that is empty or not there yet")
    for above in folder.resolve().parents:
        if (above / ".dvc").is_dir():
            raise UserError(f"{folder} is inside the project {above}; name a folder outside of it")


def _templates_for_data() -> dict[str, str]:
    """The same without the example's own flow, task, recipe and tests."""
    example = ("flows/", "tasks/", "tests/", "recipe.yaml")
    shared = {n: text for n, text in _templates().items() if not n.startswith(example)}
    return shared | _templates("template_data")


def _templates(inside: str = "template") -> dict[str, str]:
    """Text of each template by the path of the file that it becomes."""
    found: dict[str, str] = {}

    def walk(folder: Traversable, prefix: tuple[str, ...]) -> None:
        for entry in folder.iterdir():
            name = entry.name.removesuffix(_SUFFIX)
            path = (*prefix, _RENAMED.get(name, name))
            if entry.is_dir():
                walk(entry, path)
            elif entry.name.endswith(_SUFFIX):
                found[str(PurePosixPath(*path))] = entry.read_text(encoding="utf-8")

    walk(files("posttrain.operations.project") / inside, ())
    return found


def _write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if not _in_git(folder.parent):
        require_git(
            folder,
            "init",
            "--quiet",
            "--initial-branch=main",
            purpose="init it yourself",
        )


def _generate(folder: Path) -> None:
    """Write what is generated from the recipe, in a process that imports the new project's code."""
    done = subprocess.run(
        [sys.executable, "-m", "posttrain", "compile"],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UserError(f"cannot compile the recipe of a new project: {done.stderr.strip()}")
    # What was noted there is about a folder of another name.
    state = folder / ".posttrain"
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir()
    (state / "python").write_text(sys.executable + "\n", encoding="utf-8")


def _in_git(folder: Path) -> bool:
    above = next(each for each in (folder, *folder.parents) if each.is_dir())
    return ask_git(above, "rev-parse", "--is-inside-work-tree") is not None
