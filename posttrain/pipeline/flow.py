"""Flows and tasks by their names in a recipe, found in the project or beside posttrain."""

import difflib
import importlib
import inspect
import pkgutil
import sys
from pathlib import Path
from typing import Any

from posttrain.pipeline.moved import old_imports
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.installed import beside
from posttrain.stage.part_checks import where_it_failed
from posttrain.stage.spec import Task


def let_import(root: Path) -> None:
    """Let flows, tasks and plug-ins of the project at `root` be imported."""
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))


def load_flow(flow: str, root: Path, *, where: str) -> Any:
    """Import the module of a flow.

    Args:
        flow: Its dotted name, such as flows.post_training.
        root: The project's root; flows of a similar name are looked for there and beside posttrain.
        where: The recipe or command that names it, for errors.

    Returns:
        The module, which has a function `declare`.

    Raises:
        UserError: There is none of that name, it declares nothing, or the project's code imports
            what only an older posttrain had.

    """
    try:
        module = importlib.import_module(flow)
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError) or not flow.startswith(str(error.name)):
            if old := list(old_imports(root)):
                raise UserError(
                    f"{where}: this project was made with posttrain 0.1, whose modules have other"
                    f" names today: {'; '.join(old)}. docs/operations.md, Upgrade, lists what to"
                    " change"
                ) from None
            raise _broken(flow, error, where) from None
        flows = {each.rpartition(".")[2]: each for each in sorted(_flows_like(flow, root))}
        known = ", ".join(flows.values())
        # By the last word: `flows.` is of most names more than half.
        near = difflib.get_close_matches(flow.rpartition(".")[2], flows, n=1)
        hint = f"; did you mean '{flows[near[0]]}'?" if near else f"; there are {known}"
        raise UserError(f"{where}: there is no flow '{flow}'{hint}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's own code
        raise _broken(flow, error, where) from None
    if not _takes_one(getattr(module, "declare", None)):
        raise UserError(f"{flow} declares no DAG: it needs a function declare(build)")
    return module


def _takes_one(function: Any) -> bool:
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError):
        return False
    return True


def declare(module: Any, build: Any, *, where: str) -> None:
    """Let a flow declare its stages.

    Args:
        module: As `load_flow` gives it.
        build: What it declares them with.
        where: The recipe or command that names it, for errors.

    Raises:
        UserError: It declares what cannot be, or its code fails.

    """
    try:
        module.declare(build)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's own code
        said = where_it_failed(error)
        raise UserError(
            f"{where}: declare of the flow '{module.__name__}' fails: {said}; correct that line"
        ) from None


def _broken(module: str, error: BaseException, where: str) -> UserError:
    said = where_it_failed(error)
    return UserError(f"{where}: the flow '{module}' cannot be imported: {said}; correct that line")


def load_task(package: str, *, where: str) -> Task:
    """Import a task that a recipe adds to its flow.

    Args:
        package: Its dotted name, such as tasks.probe; it may be the project's own.
        where: What names it, for errors.

    Returns:
        The task.

    Raises:
        UserError: There is none of that name.

    """
    found = None
    if all(part.isidentifier() for part in package.split(".")):
        try:
            found = getattr(importlib.import_module(package), "TASK", None)
        except ModuleNotFoundError as error:
            if not f"{package}.".startswith(f"{error.name}."):
                raise
    if isinstance(found, Task):
        return found
    known = pkgutil.iter_modules(importlib.import_module("tasks").__path__, "tasks.")
    hint = nearest(package, [module.name for module in known])
    raise UserError(
        f"{where}: there is no task '{package}'{hint or '; name a package that has a TASK'}"
    )


def _flows_like(flow: str, root: Path) -> set[str]:
    """Name the modules in the package that a flow names, and all flows, of the project or not."""
    packages = {flow.rpartition(".")[0] or "flows", "flows"}
    return {
        f"{package}.{file.stem}"
        for package in packages
        for folder in beside(package, [str(root.joinpath(*package.split(".")))])
        for file in Path(folder).glob("[!_]*.py")
    }
