"""What an import statement binds, as absolute targets.

A target is `module:attribute`, or `module:` for the module itself. Whether `attribute` is a symbol
or a submodule is decided later, by whoever can see the files.
"""

import ast
from typing import NamedTuple

Import = ast.Import | ast.ImportFrom


class Binding(NamedTuple):
    """One name bound by an import: it stands for `target`; `loaded` is what gets imported."""

    name: str
    target: str
    loaded: str


def import_bindings(node: Import, *, module: str, is_package: bool) -> list[Binding]:
    """Resolve the names that an import statement binds; a star binds `*`.

    Args:
        node: The statement.
        module: Dotted name of the module in which it stands.
        is_package: True where that module is an ``__init__``, from which relative imports count.

    Returns:
        One binding per name; none of ``from __future__``.

    """
    if isinstance(node, ast.Import):
        return [_plain(alias) for alias in node.names]
    base = _base(node, module, is_package=is_package)
    if base == "__future__":
        return []
    from_itself = is_package and base == module
    return [_from(base, alias, from_itself=from_itself) for alias in node.names]


def _plain(alias: ast.alias) -> Binding:
    if alias.asname:
        return Binding(alias.asname, f"{alias.name}:", f"{alias.name}:")
    head = alias.name.partition(".")[0]
    return Binding(head, f"{head}:", f"{alias.name}:")


def _from(base: str, alias: ast.alias, *, from_itself: bool) -> Binding:
    if alias.name == "*":
        return Binding("*", f"{base}:", f"{base}:")
    # A package that imports from itself means its submodule: the name is not there yet.
    target = f"{base}.{alias.name}:" if from_itself else f"{base}:{alias.name}"
    return Binding(alias.asname or alias.name, target, target)


def _base(node: ast.ImportFrom, module: str, *, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    above = node.level - 1 if is_package else node.level
    package = parts[: len(parts) - above]
    return ".".join([*package, node.module] if node.module else package)
