"""The code of a project's own that a check of a method rests on: plug-ins, and the formula."""

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from posttrain.methods.find import SHIPPED, FoundMethod
from posttrain.pipeline.stage_keys import INTERFACE
from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.code import FRAMEWORK, CodeReader
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of_json
from posttrain.stage.installed import SHARED, home
from posttrain.stage.slots import parts_in

CheckKind = Literal["switches", "gradients"]
FORMULAS = "formulas.py"
"""In the folder that a method's file is in: a function of its name, the loss by its paper; of one
that sets both `rl` and `preference`, `NAME_rl` and `NAME_preference`."""


def code_of_check(
    found: FoundMethod, kind: CheckKind, configs: Iterable[StageConfig], root: Path
) -> str:
    """SHA-256 of the code of a project's own that a check of a method rests on.

    That is what the parts of plug-ins reach that the method names, as in the keys of stages, and
    for gradients the formula of the method's name in the file beside its own. What ships with
    posttrain is left out: the project's own tests hold it against the checks that ship.

    Args:
        found: The method.
        kind: What is checked.
        configs: Its sections, resolved.
        root: The project.

    Returns:
        Its digits; empty where all that is read ships.

    Raises:
        UserError: A file that is read is no Python.

    """
    symbols = _of_parts(configs, root)
    if kind == "gradients" and not found.path.is_relative_to(SHIPPED):
        symbols |= _of_formula(found)
    return sha256_of_json(symbols) if symbols else ""


def _of_parts(configs: Iterable[StageConfig], root: Path) -> dict[str, str]:
    """Digest each symbol of the project's own that the parts in configs reach."""
    parts = [part for config in configs for part in parts_in(config)]
    named = {f"{type(part).__module__}:{type(part).__name__}" for part in parts}
    named = named.union(*(part.functions() for part in parts))
    entries = sorted(entry for entry in named if _is_own(entry, root))
    if not entries:
        return {}
    workspace = Workspace(root, root)
    own = {*workspace.packages(), *workspace.folders_of_modules(), *map(_head, entries)}
    cache = workspace.state / "code"
    reader = CodeReader(root, packages=sorted(own), outside=INTERFACE, cache=cache)
    reached = reader.closure(*entries).symbols
    return {symbol: digest for symbol, digest in reached.items() if _is_own(symbol, root)}


def _of_formula(found: FoundMethod) -> dict[str, str]:
    """Digest each symbol that the formulas of a method reach in their file."""
    module, name = Path(FORMULAS).stem, found.method.name
    symbols: dict[str, str] = {}
    if not (found.path.parent / FORMULAS).is_file():
        return symbols
    reader = CodeReader(found.path.parent, packages=[module])
    for function in (name, *(f"{name}_{section}" for section in found.method.sets)):
        # Of a method with one section the function has its name alone, and there may be none.
        with suppress(UserError):
            symbols |= reader.closure(f"{module}:{function}").symbols
    return symbols


def _is_own(symbol: str, root: Path) -> bool:
    """Whether a symbol is of a module that does not ship with posttrain."""
    if (head := _head(symbol)) not in SHARED:
        return head != FRAMEWORK
    file = root.joinpath(*symbol.partition(":")[0].split("."))
    return root != home() and (file.is_dir() or file.with_suffix(".py").is_file())


def _head(symbol: str) -> str:
    """The package of a symbol, or the folder of a file that is read as data."""
    return re.split(r"[.:/]", symbol, maxsplit=1)[0]
