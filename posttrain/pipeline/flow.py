"""A flow's module: found by its name in a recipe, in the project or beside posttrain."""

import importlib
import sys
from pathlib import Path
from typing import Any

from posttrain.pipeline.moved import old_imports
from posttrain.stage.errors import UserError, nearest


def let_import(root: Path) -> None:
    """Let flows, tasks and plug-ins of the project at `root` be imported."""
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))


def load_flow(flow: str, root: Path, *, where: str) -> Any:
    """Import the module of a flow.

    Args:
        flow: Its dotted name, such as flows.post_training.
        root: The project's root, in which flows of a similar name are looked for.
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
            raise
        packages = dict.fromkeys([flow.rpartition(".")[0] or "flows", "flows"])
        flows = [
            f"{package}.{file.stem}"
            for package in packages
            for file in root.joinpath(*package.split(".")).glob("[!_]*.py")
        ]
        hint = nearest(flow, flows)
        raise UserError(f"{where}: there is no flow '{flow}'{hint}") from None
    if not callable(getattr(module, "declare", None)):
        raise UserError(f"{flow} declares no DAG: it needs a function declare(build)")
    return module
