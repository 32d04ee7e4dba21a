"""Files that code reads: those of the modules that it imports, and those that literals name."""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from posttrain.provenance.code.symbols import Symbol, SymbolNode
from posttrain.provenance.code.tree import SourceTree

FRAMEWORK = "posttrain"
"""The package, and the distribution: its own code reads no file that it is not handed."""

_MOST = 200
"""Files of a folder that count where code names the folder; one that holds more is not foretold."""


class NamedFiles:
    """Finds the files below a project's root that literals in its code name.

    Args:
        tree: The first-party source.
        root: The project's root.
        made: Files and folders that runs write, which no code reads but as an input.

    """

    def __init__(self, tree: SourceTree, root: Path, made: Collection[Path]) -> None:
        self._tree = tree
        self._root = root
        self._made = frozenset(made)
        self._names: dict[Path, frozenset[str]] = {}

    def of(self, symbols: Mapping[SymbolNode, Symbol]) -> dict[tuple[str, str], Path]:
        """Find what is named by reached code.

        Args:
            symbols: What was reached, by node.

        Returns:
            Existing files, by module and path from the root; Python files, which are code, too.

        """
        found: dict[tuple[str, str], Path] = {}
        for node, symbol in symbols.items():
            if symbol.paths and node.module.partition(".")[0] != FRAMEWORK:
                for text in symbol.paths:
                    for file in self._meant(node.module, text):
                        shown = file.relative_to(self._root).as_posix()
                        found[node.module, shown] = file
        return found

    def scripts(self, symbols: Mapping[SymbolNode, Symbol]) -> set[str]:
        """Find the Python files that reached code names, and what these import from beside them.

        Args:
            symbols: What was reached, by node.

        Returns:
            The names under which they could be imported.

        """
        named = (file for file in self.of(symbols).values() if file.suffix == ".py")
        modules = {module for file in named if (module := self._module(file)) is not None}
        pending = sorted(modules)
        while pending:
            fresh = self._beside(pending.pop()) - modules
            modules |= fresh
            pending += fresh
        return modules

    def _module(self, file: Path) -> str | None:
        parts = file.relative_to(self._root).with_suffix("").parts
        module = ".".join(parts).removesuffix(".__init__")
        named = all(part.isidentifier() for part in parts) and self._tree.is_first_party(module)
        return module if named and self._tree.place(module) == file else None

    def _beside(self, script: str) -> set[str]:
        """Modules of a script's own folder, which is the first on its path."""
        table, package = self._tree.table(script), script.rpartition(".")[0]
        if table is None or not package:
            return set()
        heads = {target.partition(":")[0].partition(".")[0] for target in table.loads}
        names = {f"{package}.{head}" for head in heads}
        return {name for name in names if self._tree.place(name) is not None}

    def _meant(self, module: str, text: str) -> Iterator[Path]:
        """Files that a relative path may mean: from the root, or from a folder above the module."""
        first = text.removeprefix("./").partition("/")[0]
        for base in self._bases(module):
            if first != ".." and first not in self._listed(base):
                continue
            path = Path(os.path.normpath(base / text))
            if self._root not in path.parents or not self._counts(path):
                continue
            if path.is_file():
                yield path
            elif path.is_dir():
                yield from self._inside(path)

    def _bases(self, module: str) -> Iterator[Path]:
        yield self._root
        place = self._tree.place(module)
        if place is not None and self._root in place.parents:
            folder = place if place.is_dir() else place.parent
            yield from (each for each in (folder, *folder.parents) if self._root in each.parents)

    def _inside(self, folder: Path) -> list[Path]:
        found: list[Path] = []
        for parent, folders, names in os.walk(folder):
            folders[:] = sorted(each for each in folders if each != "__pycache__")
            found += [Path(parent, name) for name in names if not name.endswith((".py", ".pyc"))]
            if len(found) > _MOST:
                return []
        return [file for file in found if file.is_file() and self._counts(file)]

    def _counts(self, path: Path) -> bool:
        hidden = any(part.startswith(".") for part in path.relative_to(self._root).parts[:1])
        return not hidden and self._made.isdisjoint((path, *path.parents))

    def _listed(self, folder: Path) -> frozenset[str]:
        if folder not in self._names:
            self._names[folder] = frozenset(os.listdir(folder))  # noqa: PTH208 - names alone
        return self._names[folder]


def variables_read(
    tree: SourceTree, known: Mapping[SymbolNode, Symbol], modules: Iterable[str]
) -> dict[str, frozenset[str]]:
    """Find the variables that reached code reads, and what importing its modules executes.

    Args:
        tree: The first-party source.
        known: What was reached, by node.
        modules: Those that are imported.

    Returns:
        The modules that read it, by the name of each variable.

    """
    readers: dict[str, set[str]] = defaultdict(set)
    read = [(node.module, symbol) for node, symbol in known.items()]
    for module in modules:
        values = tree.symbols(module).values()
        read += [(module, each) for each in values if not (each.is_function or each.is_class)]
    for module, symbol in read:
        for name in symbol.environment:
            readers[name].add(module)
    return {name: frozenset(readers[name]) for name in sorted(readers)}


def files_imported(
    tree: SourceTree, known: Mapping[SymbolNode, Symbol], modules: Collection[str]
) -> frozenset[Path]:
    """Find the files of modules, and of those that they import and that are in no key.

    Args:
        tree: The first-party source.
        known: What was reached, by node.
        modules: Those that are imported and count.

    Returns:
        Python files.

    """
    targets = {target for symbol in known.values() for target in symbol.imports}
    tables = filter(None, map(tree.table, modules))
    targets |= {target for table in tables for target in table.imports}
    places = map(tree.place, _loaded(tree, targets, modules))
    return frozenset(place for place in places if place is not None and place.suffix == ".py")


def _loaded(tree: SourceTree, targets: Iterable[str], known: Collection[str]) -> set[str]:
    """The modules that imports lead to, and what these can import in turn, with the known ones."""
    found = set(known)
    pending = list(targets)
    while pending:
        name, _, attribute = pending.pop().partition(":")
        for module in (name, f"{name}.{attribute}") if attribute else (name,):
            if module in found or not tree.is_first_party(module) or not tree.place(module):
                continue
            found.add(module)
            above, table = module.rpartition(".")[0], tree.table(module)
            pending += [above] * bool(above) + (table.loads if table is not None else [])
    return found
