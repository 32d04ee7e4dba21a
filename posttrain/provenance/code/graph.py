"""What each symbol reaches directly: names and attribute chains, resolved to symbols of modules."""

from collections.abc import Sequence

from posttrain.provenance.code.registries import Registries
from posttrain.provenance.code.scopes import BY_NAME
from posttrain.provenance.code.symbols import BODY, DOC, MAIN, Symbol, SymbolNode
from posttrain.provenance.code.texts import FILES, WHOLE, package_of
from posttrain.provenance.code.tree import SourceTree

IMPORTED = ""

_RESOURCES = ("importlib.resources", "pkgutil")


_REGISTRY = "registry"
_SLOT = "posttrain.stage.slots:Slot"


class Edges:
    """Nodes reached in one step, and why static analysis had to take more than it saw."""

    def __init__(self) -> None:
        self.nodes: dict[SymbolNode, None] = {}
        self.notes: dict[str, str] = {}
        self.followed: set[tuple[str, ...]] = set()

    def reach(self, module: str, name: str) -> None:
        """Add a node."""
        self.nodes[SymbolNode(module, name)] = None

    def fall_back(self, module: str, reason: str) -> None:
        """Take the whole of a module, and say why; the first reason stays."""
        self.nodes[SymbolNode(module, WHOLE)] = None
        self.notes.setdefault(module, reason)


class SymbolGraph:
    """Direct references between the nodes of a source tree, each resolved once."""

    def __init__(self, tree: SourceTree, *, outside: Sequence[str] = ()) -> None:
        self._tree = tree
        self._outside = frozenset(outside)
        self._counted: dict[str, bool] = {}
        self._edges: dict[SymbolNode, Edges] = {}
        self._registries = Registries(self.symbol, self._meanings)

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
        """Whether a module is called `registry` and holds imports and slots, and nothing else.

        Such a module decides nothing: the parts that a recipe names are entries of their own.
        """
        if module.rpartition(".")[2] != _REGISTRY:
            return False
        table = self._tree.table(module)
        if table is None:
            return False
        symbols = {name: each for name, each in table.symbols.items() if name != DOC}
        slots = {name for name, each in symbols.items() if _SLOT in each.targets}
        made = [each for each in symbols.values() if not each.targets]
        return bool(made) and all(len(each.calls) == 1 and each.calls[0] in slots for each in made)

    def symbol(self, node: SymbolNode) -> Symbol | None:
        """The symbol behind a node; imports, whole modules and packages have none."""
        if not node.module or node.name in (IMPORTED, WHOLE):
            return None
        table = self._tree.table(node.module)
        return table.symbols.get(node.name) if table is not None else None

    def edges(self, node: SymbolNode) -> Edges:
        """Everything that `node` reaches in one step."""
        if node not in self._edges:
            edges = self._edges[node] = Edges()
            if node.name == IMPORTED:
                self._import(node.module, edges)
            elif node.name == WHOLE:
                self._whole(node.module, edges)
            elif (symbol := self.symbol(node)) is not None:
                edges.reach(node.module, IMPORTED)
                self._uses(node, symbol, edges)
        return self._edges[node]

    def entry(self, node: SymbolNode) -> Edges:
        """What an entry is, and the types of the arguments that it is called with."""
        edges = Edges()
        self._resolve(node.module, node.name, edges)
        for module, name in list(edges.nodes):
            symbol, table = self.symbol(SymbolNode(module, name)), self._tree.table(module)
            if symbol is not None and table is not None:
                for use in symbol.signature:
                    root, _, rest = use.partition(".")
                    target = table.type_only.get(root)
                    self._resolve(module, _extended(target, rest) if target else use, edges)
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
            self._load(target, edges)
        for star in table.stars:
            if self.counts(star):
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
        names = self.symbol(SymbolNode(package, "__all__"))
        for name in names.strings if names is not None else ():
            if self._tree.place(f"{package}.{name}") is not None:
                edges.reach(f"{package}.{name}", WHOLE)

    def _below(self, package: str, reason: str, edges: Edges) -> None:
        """All modules of a package, one of which is looked up by a run-time name."""
        for module in filter(self.counts, self._tree.submodules(package)):
            edges.reach(module, WHOLE)
        edges.notes.setdefault(f"{package}.*", reason)

    def _whole(self, module: str, edges: Edges) -> None:
        edges.reach(module, IMPORTED)
        table = self._tree.table(module)
        for name, symbol in table.symbols.items() if table is not None else ():
            if name in (DOC, MAIN):
                continue
            edges.reach(module, name)
            bound = Edges()
            for target in symbol.targets:
                self._resolve(module, target, bound)
            for node in bound.nodes:
                # What a module imports is taken with it; of other modules only its own parts are.
                if node.name != WHOLE or node.module.startswith(f"{module}."):
                    edges.reach(*node)

    def _uses(self, node: SymbolNode, symbol: Symbol, edges: Edges) -> None:
        for target in symbol.imports:
            self._load(target, edges)
        for reason in symbol.opaque:
            edges.fall_back(node.module, reason)
        for use, reason in symbol.dynamic:
            self._look_into(node.module, use, reason, edges)
        for use in symbol.uses:
            self._resolve(node.module, use, edges)
        for found in [found for found in edges.nodes if found.name == WHOLE]:
            edges.notes.setdefault(found.module, f"used as a value by {node.module}:{node.name}")
        if symbol.imports_by_name and symbol.names_its_place:
            reason = f"{symbol.opaque[0]} of {node.module}"
            self._below(package_of(self._tree, node.module), reason, edges)

    def _look_into(self, module: str, use: str, reason: str, edges: Edges) -> None:
        """Something is looked up by a run-time name in what `use` stands for."""
        root = use.partition(".")[0]
        table = self._tree.table(module)
        known = ":" in use or (table is not None and root in table.symbols)
        if not known:
            edges.fall_back(module, reason)
            self._imported_modules(module, reason, edges)
        elif root not in BY_NAME:
            for found in self._meanings(module, use):
                if found.name == WHOLE:
                    edges.fall_back(found.module, f"{reason} of {module}")

    def _imported_modules(self, module: str, reason: str, edges: Edges) -> None:
        """Text that is evaluated in a module can reach into all that it imports as modules."""
        table = self._tree.table(module)
        bound = Edges()
        for symbol in table.symbols.values() if table is not None else ():
            for target in symbol.targets:
                self._resolve(module, target, bound)
        for found in bound.nodes:
            if found.name == WHOLE:
                edges.fall_back(found.module, f"{reason} of {module}")

    def _resolve(self, module: str, use: str, edges: Edges) -> None:
        """Follow a chain written in `module`; names that it does not define are builtins."""
        absolute, colon, rest = use.partition(":")
        if colon:
            self._follow(absolute, rest.split(".") if rest else [], edges, module)
            return
        names = use.split(".")
        table = self._tree.table(module)
        if names[0] == "__file__":
            edges.reach(module, FILES)
        elif table is not None and names[0] in table.symbols:
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
        table = self._tree.table(module)
        if table is not None and name in table.symbols:
            edges.reach(module, name)
            for target in table.symbols[name].targets:
                self._resolve(module, _extended(target, ".".join(rest)), edges)
        elif self._tree.place(f"{module}.{name}") is not None:
            self._follow(f"{module}.{name}", rest, edges, user)
        elif name == "__file__":
            edges.reach(module, FILES)
        elif name == "__path__":
            self._below(module, f"__path__ is used by {user}", edges)
        elif not (table is not None and table.stars) and name not in ("__name__", "__doc__"):
            edges.fall_back(module, f"nothing in it defines {name}")

    def _load(self, target: str, edges: Edges) -> None:
        """Import a module, or the submodule that is imported from it."""
        module, _, name = target.partition(":")
        if not self._tree.is_first_party(module):
            edges.reach("", module.partition(".")[0])
        elif self._tree.place(module) is None:
            edges.notes.setdefault(module, "there is no source for it")
        elif self.counts(module):
            edges.reach(module, IMPORTED)
            table = self._tree.table(module)
            defined = table is not None and name in table.symbols
            submodule = f"{module}.{name}"
            if name and not defined and self._tree.place(submodule) and self.counts(submodule):
                edges.reach(submodule, IMPORTED)

    def _meanings(self, module: str, use: str) -> list[SymbolNode]:
        """The symbols and whole modules that a chain stands for, import bindings looked through."""
        edges = Edges()
        self._resolve(module, use, edges)
        return [node for node in edges.nodes if node.name != IMPORTED and not self._is_import(node)]

    def _is_import(self, node: SymbolNode) -> bool:
        symbol = self.symbol(node)
        return symbol is not None and bool(symbol.targets) and not symbol.is_function


def _extended(target: str, rest: str) -> str:
    """`target` with further attributes read from it."""
    if not rest:
        return target
    return target + rest if target.endswith(":") else f"{target}.{rest}"
