"""What each symbol reaches directly: the nodes of a source tree and the edges between them."""

from collections.abc import Sequence

from posttrain.provenance.code.registries import Registries
from posttrain.provenance.code.resolve import IMPORTED, Edges, NameResolver, extended
from posttrain.provenance.code.scopes import BY_NAME
from posttrain.provenance.code.symbols import BODY, DOC, MAIN, Symbol, SymbolNode
from posttrain.provenance.code.texts import FILES, WHOLE, package_of
from posttrain.provenance.code.tree import SourceTree


class SymbolGraph:
    """Direct references between the nodes of a source tree, each resolved once.

    Args:
        tree: The first-party modules.
        outside: Those, and packages with all below them, whose code cannot change a result.

    """

    def __init__(self, tree: SourceTree, *, outside: Sequence[str] = ()) -> None:
        self._tree = tree
        self._names = NameResolver(tree, outside=outside)
        self.counts, self.symbol = self._names.counts, self._names.symbol
        self._edges: dict[SymbolNode, Edges] = {}
        self._registries = Registries(self.symbol, self._names.meanings)

    def edges(self, node: SymbolNode) -> Edges:
        """Everything that `node` reaches in one step."""
        if node not in self._edges:
            edges = self._edges[node] = Edges()
            if node.name == IMPORTED:
                self._import(node.module, edges)
            elif node.name == WHOLE:
                self._whole(node.module, edges)
            elif (symbol := self._names.symbol(node)) is not None:
                edges.reach(node.module, IMPORTED)
                self._uses(node, symbol, edges)
        return self._edges[node]

    def entry(self, node: SymbolNode) -> Edges:
        """What an entry is, and the types of the arguments that it is called with."""
        edges = Edges()
        self._names.resolve(node.module, node.name, edges)
        for module, name in list(edges.nodes):
            symbol, table = self._names.symbol(SymbolNode(module, name)), self._tree.table(module)
            if symbol is not None and table is not None:
                for use in symbol.signature:
                    root, _, rest = use.partition(".")
                    target = table.type_only.get(root)
                    self._names.resolve(module, extended(target, rest) if target else use, edges)
        return edges

    def _import(self, module: str, edges: Edges) -> None:
        """Importing a module imports its packages, runs its body, and all this for its imports."""
        package, _, _ = module.rpartition(".")
        if package:
            edges.reach(package, IMPORTED)
        table = self._tree.table(module)
        if table is None:
            return
        for target in table.imports:
            self._names.load(target, edges)
        for star in table.stars:
            if self._names.counts(star):
                edges.fall_back(star, f"star import in {module}")
                self._exported(star, edges)
        if BODY in table.symbols:
            edges.reach(module, BODY)
        for name, symbol in table.symbols.items():
            if self._registries.takes(module, symbol):
                edges.reach(module, name)
                edges.notes.setdefault(module, f"registry filled at import by {name}")

    def _exported(self, package: str, edges: Edges) -> None:
        """A star import imports the submodules that `__all__` names."""
        names = self._names.symbol(SymbolNode(package, "__all__"))
        for name in names.strings if names is not None else ():
            if self._tree.place(f"{package}.{name}") is not None:
                edges.reach(f"{package}.{name}", WHOLE)

    def _whole(self, module: str, edges: Edges) -> None:
        edges.reach(module, IMPORTED)
        for name, symbol in self._tree.symbols(module).items():
            if name in (DOC, MAIN):
                continue
            edges.reach(module, name)
            for node in self._bound(module, symbol).nodes:
                # What a module imports is taken with it; of other modules only its own parts are.
                if node.name != WHOLE or node.module.startswith(f"{module}."):
                    edges.reach(*node)

    def _bound(self, module: str, symbol: Symbol) -> Edges:
        """What the imports of a symbol bind."""
        bound = Edges()
        for target in symbol.targets:
            self._names.resolve(module, target, bound)
        return bound

    def _uses(self, node: SymbolNode, symbol: Symbol, edges: Edges) -> None:
        for target in symbol.imports:
            self._names.load(target, edges)
        for reason in symbol.opaque:
            edges.fall_back(node.module, reason)
        for use, reason in symbol.dynamic:
            self._look_into(node.module, use, reason, edges)
        for use in symbol.uses:
            self._names.resolve(node.module, use, edges)
        for found in [found for found in edges.nodes if found.name == WHOLE]:
            edges.notes.setdefault(found.module, f"used as a value by {node.module}:{node.name}")
        if symbol.places:
            # Where an object lies, its module does.
            meant = {found.module for found in edges.nodes if found.name != IMPORTED}
            for module in filter(None, {*meant, node.module}):
                edges.reach(module, FILES)
        if symbol.imports_by_name and symbol.names_its_place:
            reason = f"{symbol.opaque[0]} of {node.module}"
            self._names.below(package_of(self._tree, node.module), reason, edges)

    def _look_into(self, module: str, use: str, reason: str, edges: Edges) -> None:
        """Something is looked up by a run-time name in what `use` stands for."""
        root = use.partition(".")[0]
        if ":" not in use and root not in self._tree.symbols(module):
            edges.fall_back(module, reason)
            self._imported_modules(module, reason, edges)
        elif root not in BY_NAME:
            for found in self._names.meanings(module, use):
                if found.name == WHOLE:
                    edges.fall_back(found.module, f"{reason} of {module}")

    def _imported_modules(self, module: str, reason: str, edges: Edges) -> None:
        """Text that is evaluated in a module can reach into all that it imports as modules."""
        for symbol in self._tree.symbols(module).values():
            for found in self._bound(module, symbol).nodes:
                if found.name == WHOLE:
                    edges.fall_back(found.module, f"{reason} of {module}")
