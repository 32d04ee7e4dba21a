"""What names stand for: chains followed through modules, imports and re-exports, to symbols."""

from collections.abc import Sequence

from posttrain.provenance.code.symbols import DOC, Symbol, SymbolNode
from posttrain.provenance.code.texts import FILES, WHOLE
from posttrain.provenance.code.tree import SourceTree

IMPORTED = ""

_RESOURCES = ("importlib.resources", "pkgutil")
_REGISTRY = "registry"
_SLOT = "posttrain.stage.slots:Slot"
_OF_SLOTS = (_SLOT, "posttrain.stage.slots:InSlot")


class Edges:
    """Nodes reached in one step, and why static analysis had to take more than it saw."""

    def __init__(self) -> None:
        self.nodes: dict[SymbolNode, None] = {}
        self.notes: dict[str, str] = {}
        self.followed: set[tuple[str, ...]] = set()

    def reach(self, module: str, name: str) -> None:
        """Add a node.

        Args:
            module: Dotted name; empty of a package that is not ours.
            name: Of the symbol in it.

        """
        self.nodes[SymbolNode(module, name)] = None

    def fall_back(self, module: str, reason: str) -> None:
        """Take the whole of a module, and say why; the first reason stays.

        Args:
            module: Dotted name.
            reason: Why analysis cannot say which of its symbols count.

        """
        self.nodes[SymbolNode(module, WHOLE)] = None
        self.notes.setdefault(module, reason)


class NameResolver:
    """Follows names of a source tree.

    Args:
        tree: The first-party modules.
        outside: Those, and packages with all below them, whose code cannot change a result.

    """

    def __init__(self, tree: SourceTree, *, outside: Sequence[str] = ()) -> None:
        self._tree = tree
        self._outside = frozenset(outside)
        self._counted: dict[str, bool] = {}

    def counts(self, module: str) -> bool:
        """Whether the code of a first-party module can change a result."""
        known = self._counted.get(module)
        if known is None:
            parts = module.split(".")
            above = {".".join(parts[: n + 1]) for n in range(len(parts))}
            known = above.isdisjoint(self._outside) and not self._only_lists_parts(module)
            self._counted[module] = known
        return known

    def _only_lists_parts(self, module: str) -> bool:
        """Whether a module is called `registry` and holds slots and types of fields of them alone.

        Such a module decides nothing: the parts that a recipe names are entries of their own.
        """
        if module.rpartition(".")[2] != _REGISTRY:
            return False
        symbols = {n: each for n, each in self._tree.symbols(module).items() if n != DOC}
        slots = {name for name, each in symbols.items() if {*_OF_SLOTS} & {*each.targets}}
        made = [each for each in symbols.values() if not each.targets]
        return bool(made) and all(len(each.calls) == 1 and each.calls[0] in slots for each in made)

    def symbol(self, node: SymbolNode) -> Symbol | None:
        """The symbol behind a node; imports, whole modules and packages have none."""
        if not node.module or node.name in (IMPORTED, WHOLE):
            return None
        return self._tree.symbols(node.module).get(node.name)

    def below(self, package: str, reason: str, edges: Edges) -> None:
        """Reach all modules of a package, one of which is looked up by a run-time name.

        Args:
            package: Dotted name.
            reason: Why all of them count.
            edges: Takes the nodes and the note.

        """
        for module in filter(self.counts, self._tree.submodules(package)):
            edges.reach(module, WHOLE)
        edges.notes.setdefault(f"{package}.*", reason)

    def resolve(self, module: str, use: str, edges: Edges) -> None:
        """Follow a chain written in `module`; names that it does not define are builtins.

        Args:
            module: Dotted name.
            use: The chain, such as ``numpy.random.rand``, or ``module:rest`` by an absolute name.
            edges: Takes what it leads to.

        """
        absolute, colon, rest = use.partition(":")
        if colon:
            self._follow(absolute, rest.split(".") if rest else [], edges, module)
            return
        names = use.split(".")
        if names[0] == "__file__":
            edges.reach(module, FILES)
        elif names[0] in self._tree.symbols(module):
            self._follow(module, names, edges, module)

    def _follow(self, module: str, names: list[str], edges: Edges, user: str) -> None:
        """Walk `module.name.name...` as far as it leads through modules and import bindings."""
        if not self._tree.is_first_party(module):
            edges.reach("", module.partition(".")[0])
            if ".".join([module, *names]).startswith(_RESOURCES):
                edges.reach(user, FILES)
            return
        if not self.counts(module) or (module, *names) in edges.followed:
            return
        edges.followed.add((module, *names))
        edges.reach(module, IMPORTED)
        if not names:
            edges.reach(module, WHOLE)
            return
        name, *rest = names
        table, symbols = self._tree.table(module), self._tree.symbols(module)
        if name in symbols:
            edges.reach(module, name)
            for target in symbols[name].targets:
                self.resolve(module, extended(target, ".".join(rest)), edges)
        elif self._tree.place(f"{module}.{name}") is not None:
            self._follow(f"{module}.{name}", rest, edges, user)
        elif name in ("__file__", "__spec__"):
            edges.reach(module, FILES)
        elif name == "__path__":
            edges.reach(module, FILES)
            self.below(module, f"__path__ is used by {user}", edges)
        elif not (table is not None and table.stars) and name not in ("__name__", "__doc__"):
            edges.fall_back(module, f"nothing in it defines {name}")

    def load(self, target: str, edges: Edges) -> None:
        """Import a module, or the submodule that is imported from it.

        Args:
            target: ``module`` or ``module:name``.
            edges: Takes the nodes; a note where there is no source for the module.

        """
        module, _, name = target.partition(":")
        if not self._tree.is_first_party(module):
            edges.reach("", module.partition(".")[0])
        elif self._tree.place(module) is None:
            edges.notes.setdefault(module, "there is no source for it")
        elif self.counts(module):
            edges.reach(module, IMPORTED)
            defined = name in self._tree.symbols(module)
            submodule = f"{module}.{name}"
            if name and not defined and self._tree.place(submodule) and self.counts(submodule):
                edges.reach(submodule, IMPORTED)

    def meanings(self, module: str, use: str) -> list[SymbolNode]:
        """Find the symbols and whole modules that a chain stands for, looking through imports.

        Args:
            module: Dotted name of the module in which the chain is written.
            use: The chain.

        Returns:
            Nodes; none of a builtin.

        """
        edges = Edges()
        self.resolve(module, use, edges)
        return [node for node in edges.nodes if node.name != IMPORTED and not self._is_import(node)]

    def _is_import(self, node: SymbolNode) -> bool:
        symbol = self.symbol(node)
        return symbol is not None and bool(symbol.targets) and not symbol.is_function


def extended(target: str, rest: str) -> str:
    """Read further attributes from a target.

    Args:
        target: ``module:`` or ``module:name``.
        rest: Attributes joined by dots; may be empty.

    Returns:
        ``module:name.attribute``.

    """
    if not rest:
        return target
    return target + rest if target.endswith(":") else f"{target}.{rest}"
