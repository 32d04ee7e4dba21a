"""Today's code in the spelling of an older version, in which modules had other names."""

import ast
from collections.abc import Mapping


class Renaming(ast.NodeTransformer):
    """Gives modules the names that they had.

    Args:
        moved: Old module or package -> where it is now; the longest that fits counts.

    >>> names = Renaming({"posttrain.maths": "posttrain.learning.maths"})
    >>> names.former("posttrain.learning.maths.kl")
    'posttrain.maths.kl'
    >>> ast.unparse(names.visit(ast.parse("from posttrain.learning.maths.kl import k3")))
    'from posttrain.maths.kl import k3'

    """

    def __init__(self, moved: Mapping[str, str]) -> None:
        self._current = dict(moved)
        self._former = {now: then for then, now in moved.items()}

    def former(self, module: str) -> str:
        """The name that a module of today had."""
        return _moved(module, self._former)

    def current(self, module: str) -> str:
        """The name that a module of then has."""
        return _moved(module, self._current)

    def visit_Import(self, node: ast.Import) -> ast.Import:
        """Rename each module of `import a.b as c`."""
        names = [ast.alias(self.former(alias.name), alias.asname) for alias in node.names]
        return ast.copy_location(ast.Import(names), node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        """Rename the module of `from a import b`, and `b` itself where that is a module."""
        if node.level or not node.module:
            return [node]
        found: dict[str, list[ast.alias]] = {}
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            then = self.former(whole)
            module, _, name = then.rpartition(".")
            if then == f"{self.former(node.module)}.{alias.name}" or not module:
                module, name = self.former(node.module), alias.name
            named = ast.alias(name, alias.asname or (alias.name if name != alias.name else None))
            found.setdefault(module, []).append(named)
        return [
            ast.copy_location(ast.ImportFrom(module, names, 0), node)
            for module, names in found.items()
        ]


def _moved(module: str, names: Mapping[str, str]) -> str:
    parts = module.split(".")
    for n in range(len(parts), 0, -1):
        other = names.get(".".join(parts[:n]))
        if other is not None:
            return ".".join([other, *parts[n:]])
    return module
