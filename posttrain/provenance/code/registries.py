"""Definitions that somebody else remembers: by a decorator, a call, a metaclass or a base class.

No name leads to them, so they count wherever their module is imported.
"""

import sys
from collections.abc import Callable

from posttrain.provenance.code.effects import CHANGING
from posttrain.provenance.code.symbols import Symbol, SymbolNode

# Packages whose decorators, base classes and functions keep nothing, where their names do not say
# so. Of any other one it is not known.
_KNOWN = frozenset(
    {
        "alembic", "click", "datasets", "dvc", "git", "hypothesis", "jinja2", "mlflow", "numpy",
        "omegaconf", "pandas", "peft", "polars", "prefect", "psutil", "psycopg", "pyarrow",
        "pydantic", "pytest", "ray", "regex", "requests", "rich", "safetensors", "scipy",
        "sqlalchemy", "tokenizers", "torch", "tqdm", "transformers", "vllm", "yaml",
    }
)  # fmt: skip
_REMEMBERING = (
    "register", "custom_op", "set_", "manual_seed", "patch", "install", "enable_", "disable_",
    "setattr", "heappush", "insort",
)  # fmt: skip
# Methods that only look at the object that they belong to.
_LOOKING = frozenset(
    {
        "copy", "count", "difference", "endswith", "format", "get", "index", "intersection",
        "items", "join", "joinpath", "keys", "lower", "match", "read_bytes", "read_text",
        "replace", "split", "splitlines", "startswith", "strip", "sub", "union", "upper", "values",
    }
)  # fmt: skip


class Registries:
    """Finds what is registered, given the symbol of a node and the meanings of a chain."""

    def __init__(
        self,
        symbol: Callable[[SymbolNode], Symbol | None],
        meanings: Callable[[str, str], list[SymbolNode]],
    ) -> None:
        self._symbol = symbol
        self._meanings = meanings
        self._pure: dict[SymbolNode, bool] = {}
        self._hooking: dict[SymbolNode, bool] = {}

    def takes(self, module: str, symbol: Symbol) -> bool:
        """Tell whether defining a symbol hands it to code that may call it later.

        Args:
            module: Dotted name of the module that defines it.
            symbol: Its decorators, calls and bases.

        Returns:
            True also where that cannot be excluded.

        """
        if any(self._registers(module, use) for use in symbol.calls):
            return True
        if any(self._changes(module, *pair) for pair in symbol.handed):
            return True
        return any(self._hooked(module, base) for base in symbol.bases)

    def _registers(self, module: str, use: str) -> bool:
        """Whether a call, decorator or metaclass may remember what it is given."""
        *_, last = parts = use.split(".")
        if any(part.startswith(_REMEMBERING) for part in parts) or not use:
            return True
        if len(parts) > 1 and last in _LOOKING:
            return False
        found = self._meanings(module, use)
        changes = len(parts) > 1 and last in CHANGING
        return not all(self._is_pure(node) and not changes for node in found)

    def _changes(self, module: str, function: str, argument: str) -> bool:
        """Whether a function that changes what it is given is given an object that stays."""
        called = [self._symbol(node) for node in self._meanings(module, function)]
        if not any(symbol is not None and symbol.changes_arguments for symbol in called):
            return False
        return not all(self._is_pure(node) for node in self._meanings(module, argument))

    def _is_pure(self, node: SymbolNode) -> bool:
        """Whether it is a function or class that changes no object which outlives its call."""
        if node not in self._pure:
            self._pure[node] = self._changes_nothing(node)
        return self._pure[node]

    def _changes_nothing(self, start: SymbolNode) -> bool:
        symbol = self._symbol(start)
        if start.module and (symbol is None or _is_object(symbol)):
            return False
        seen, pending = {start}, [start]
        objects = changing = False
        while pending:
            node = pending.pop()
            symbol = self._symbol(node)
            if not node.module and _is_known(node):
                continue
            if symbol is None or symbol.opaque or symbol.dynamic or symbol.changes_others:
                return False
            objects |= _is_object(symbol)
            changing |= symbol.changes_arguments
            for use in () if symbol.is_plain else symbol.uses:
                found = self._meanings(node.module, use)
                if self._may_change(use, found):
                    return False
                pending += [other for other in found if other not in seen]
                seen.update(found)
        return not (objects and changing)

    def _may_change(self, use: str, found: list[SymbolNode]) -> bool:
        """Whether a chain calls a method of an object of a module, or says that it registers."""
        *above, last = parts = use.split(".")
        if any(part.startswith(_REMEMBERING) for part in parts):
            return True
        if not above or last in _LOOKING:
            return False
        symbols = ((other.name, self._symbol(other)) for other in found)
        return any(name != last and each and _is_object(each) for name, each in symbols)

    def _hooked(self, module: str, base: str) -> bool:
        """Whether a base class, by its chain, learns of a class that is based on it."""
        return not base or any(self._hooks(node) for node in self._meanings(module, base))

    def _hooks(self, node: SymbolNode) -> bool:
        """Whether subclasses of a class make themselves known to it."""
        if node not in self._hooking:
            self._hooking[node] = False  # a class may be based on another one of its own name
            symbol = self._symbol(node)
            if symbol is None:
                self._hooking[node] = not node.module and not _is_known(node)
            else:
                # Of a base that is made by a call or has another name nothing is known.
                known = symbol.is_class and not symbol.hooks_subclasses
                self._hooking[node] = not known or self.takes(node.module, symbol)
        return self._hooking[node]


def _is_known(node: SymbolNode) -> bool:
    return node.name in _KNOWN or node.name in sys.stdlib_module_names


def _is_object(symbol: Symbol) -> bool:
    """Whether it is neither code nor a value that cannot change."""
    return not (symbol.is_function or symbol.is_class or symbol.is_plain)
