"""Imports of 0.1 in the code of a project, with what they are called today."""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from posttrain.pipeline.moved import MOVED, NAMES, TAKEN_APART
from posttrain.provenance.code import Renaming

_FOLDERS = ("flows", "tasks", "tests")


def old_imports(root: Path) -> Iterator[str]:
    """Find what a project imports by a name of 0.1.

    Args:
        root: The project's root.

    Yields:
        A clause for each import: the line, the old name and today's.

    """
    for folder in _FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            try:
                tree = ast.parse(file.read_text(encoding="utf-8"))
            except (SyntaxError, ValueError):
                continue
            where = file.relative_to(root)
            for node in ast.walk(tree):
                for old, new in _imports_of_then(node):
                    yield f"{where}:{getattr(node, 'lineno', 1)}: {old} is now {new}"


def _imports_of_then(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        yield from _moved_modules(*(alias.name for alias in node.names))
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        whole = [f"{node.module}.{alias.name}" for alias in node.names]
        named = {each: NAMES[each] for each in whole if each in NAMES}
        yield from named.items()
        if len(named) < len(whole):
            yield from _moved_modules(node.module)


def _moved_modules(*modules: str) -> Iterator[tuple[str, str]]:
    for module in modules:
        today = TAKEN_APART.get(module) or Renaming(MOVED).current(module)
        if today != module and not _exists(module):
            yield module, today


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
