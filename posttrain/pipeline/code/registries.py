"""Definitions that somebody else remembers: by a decorator, a metaclass or a hook of a base class.

No name leads to them, so they count wherever their module is imported.
"""

from collections.abc import Callable

from posttrain.pipeline.code.symbols import Node, Symbol


class Registries:
    """Finds what is registered, given the symbol of a node and the meanings of a chain."""

    def __init__(
        self,
        symbol: Callable[[Node], Symbol | None],
        meanings: Callable[[str, str], list[Node]],
    ) -> None:
        self._symbol = symbol
        self._meanings = meanings
        self._pure: dict[Node, bool] = {}
        self._hooking: dict[Node, bool] = {}

    def takes(self, module: str, symbol: Symbol) -> bool:
        """Whether defining a symbol of `module` hands it to code that may call it later."""
        if any(self._registers(module, use) for use in symbol.decorators):
            return True
        bases = (node for use in symbol.bases for node in self._meanings(module, use))
        return any(self._hooks(node) for node in bases)

    def _registers(self, module: str, use: str) -> bool:
        """Whether a decorator or metaclass may remember what it is applied to."""
        for node in self._meanings(module, use):
            if node.module and not self._is_pure(node):
                return True
        return any(part.startswith(("register", "custom_op")) for part in use.split("."))

    def _is_pure(self, node: Node) -> bool:
        """Whether a decorator is a function that can reach no object which outlives its call."""
        if node not in self._pure:
            self._pure[node] = self._touches_nothing(node)
        return self._pure[node]

    def _touches_nothing(self, start: Node) -> bool:
        seen, pending = {start}, [start]
        while pending:
            node = pending.pop()
            symbol = self._symbol(node)
            if symbol is None or not symbol.is_function or symbol.opaque or symbol.dynamic:
                return False
            found = {other for use in symbol.uses for other in self._meanings(node.module, use)}
            fresh = {other for other in found if other.module} - seen
            seen |= fresh
            pending += fresh
        return True

    def _hooks(self, node: Node) -> bool:
        """Whether subclasses of a class make themselves known to it."""
        if node not in self._hooking:
            self._hooking[node] = False  # a class may be based on another one of its own name
            symbol = self._symbol(node)
            self._hooking[node] = symbol is not None and (
                symbol.hooks_subclasses or self.takes(node.module, symbol)
            )
        return self._hooking[node]
