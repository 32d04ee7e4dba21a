"""All first-party code that an entry can reach."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from posttrain.provenance.code.archive import SourceArchive
from posttrain.provenance.code.distributions import distributions, released
from posttrain.provenance.code.files import NamedFiles, files_imported, variables_read
from posttrain.provenance.code.graph import SymbolGraph
from posttrain.provenance.code.lookups import OF_SIGNATURES
from posttrain.provenance.code.renaming import Renaming
from posttrain.provenance.code.resolve import IMPORTED
from posttrain.provenance.code.seen import Signature
from posttrain.provenance.code.symbols import BODY, MAIN, Symbol, SymbolNode, parse_module
from posttrain.provenance.code.texts import (
    FILES,
    WHOLE,
    loads_by_name,
    named_in_text,
    subclasses_asked_for,
)
from posttrain.provenance.code.tree import SourceTree, room_to_recurse
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.hashing import sha256_of


@dataclass(frozen=True)
class CodeClosure:
    """The code behind an entry: `module:symbol` -> digest, with `<body>` for what an import does.

    `packages` are the third-party distributions that this code imports, `modules` the first-party
    modules, those included of which nothing else is reached. `opaque` says where static analysis
    could not see and took the whole module, and why. `loads_by_name`: it imports modules by names
    that are known when it runs. `lazy` are those of `packages` that are imported inside of
    functions alone, with the modules of these: whether they are is for the parameters to say.
    """

    symbols: Mapping[str, str]
    packages: frozenset[str]
    modules: frozenset[str]
    opaque: Mapping[str, str]
    digest: str
    loads_by_name: bool = False
    lazy: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unused: frozenset[str] = frozenset()
    """Those of the lazy ones that were taken out of `packages`, as no parameter leads to them."""
    sources: frozenset[Path] = frozenset()
    """Python files that it can import, with those of modules that are in no key."""
    data: frozenset[Path] = frozenset()
    """Other files that it can read, as far as its text names them; they count by content."""
    environment: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Variables that it reads, `*` for names that are computed, with the modules that do."""

    @property
    def files(self) -> frozenset[Path]:
        """Every first-party file that this code is known to read: nothing else may be."""
        return self.sources | self.data


class CodeReader:
    """Closures over one snapshot of the source files; what they share is computed once.

    Args:
        root: Folder in which the first-party packages lie.
        packages: Names of the first-party packages; everything else is third-party.
        outside: First-party modules, and packages with all below them, whose code cannot change
            a result and is left out.
        cache: Folder that keeps what was found in each version of a file; None keeps nothing.
        made: Files and folders that runs write: text that names them leads to no file.

    """

    def __init__(
        self,
        root: Path,
        *,
        packages: Sequence[str],
        outside: Sequence[str] = (),
        cache: Path | None = None,
        made: Collection[Path] = (),
    ) -> None:
        passing = {path.name for path in made if path.parent == root}
        self._tree = SourceTree(root, packages, cache=cache, passing=passing)
        self._root = root
        self._files = NamedFiles(self._tree, root, made)
        self._graph = SymbolGraph(self._tree, outside=outside)
        self._packages = tuple(packages)
        self._cache = cache

    def closure(self, *entries: str, given: Iterable[str] = ()) -> CodeClosure:
        """Collect everything that some entries reach, with the types of their arguments.

        Args:
            entries: Functions, as `module:function`.
            given: Text from outside, such as parameters. Where the code imports by name, the
                modules that it names are reached as well.

        Returns:
            Symbols with the digest of their source, and what is imported of others.

        """
        reached, reasons = self._reach([self._start(entry) for entry in entries], list(given))
        known = self._symbols(reached)
        found = {f"{node.module}:{node.name}": symbol.digest for node, symbol in known.items()}
        found |= _texts(known, reasons)
        data = self._data(reached, known)
        found |= {name: self._tree.seen.digest(file) for name, file in data.items()}
        modules = frozenset(node.module for node in reached if node.module)
        sources = files_imported(self._tree, known, modules)
        self._search(sources.union(data.values()))
        self._tree.save()
        symbols = dict(sorted(found.items()))
        heads = {module.partition(".")[0] for module in modules}
        imported = (node.name for node in reached if not node.module)
        return CodeClosure(
            symbols=symbols,
            packages=distributions(imported, cache=self._cache)
            | released(filter(self._tree.is_installed, heads), cache=self._cache),
            modules=modules,
            opaque={module: "; ".join(sorted(reasons[module])) for module in sorted(reasons)},
            digest=sha256_of("\n".join(f"{name} {symbols[name]}" for name in symbols)),
            loads_by_name=loads_by_name(known),
            lazy=self._lazy(reached),
            sources=sources,
            data=frozenset(data.values()),
            environment=variables_read(self._tree, known, modules),
        )

    def imported(self, module: str) -> frozenset[Path]:
        """Find the files of a first-party module and of all that importing it can import.

        Args:
            module: Its name.

        Returns:
            Python files.

        """
        return files_imported(self._tree, {}, frozenset({module}))

    def is_current(self) -> bool:
        """Whether every file that was read holds what it held, and no module came or went."""
        return self._tree.seen.is_current()

    def signatures(self, closure: CodeClosure) -> dict[Path, Signature]:
        """By which signs the files of a closure's modules were known when they were read."""
        places = filter(None, map(self._tree.place, closure.modules))
        found = {place: self._tree.seen.signature(place) for place in places}
        return {place: signature for place, signature in found.items() if signature is not None}

    def _search(self, files: Iterable[Path]) -> None:
        """Remember which modules the folders of some files, and those above them, hold."""
        folders = {self._root, *(file.parent for file in files)}
        for folder in folders | {each.parent for each in folders if self._root in each.parents}:
            self._tree.seen.search(folder)

    def _data(
        self, reached: Iterable[SymbolNode], known: Mapping[SymbolNode, Symbol]
    ) -> dict[str, Path]:
        """Files that are not imported, by the name under which they are in a key."""
        found = {
            f"{node.module}:<file {name}>": file
            for node in reached
            if node.name == FILES
            for name, file in self._tree.data_files(node.module).items()
        }
        beside = set(found.values()) | {self._tree.place(node.module) for node in reached}
        named = {
            f"{module}:<file ./{name}>": file
            for (module, name), file in self._files.of(known).items()
            if file not in beside
        }
        return found | named

    def _lazy(self, reached: Iterable[SymbolNode]) -> dict[str, frozenset[str]]:
        """Distributions that no module imports while it is imported itself, with who does later."""
        importers: dict[str, set[SymbolNode]] = defaultdict(set)
        for node in reached:
            for found in self._graph.edges(node).nodes:
                if not found.module:
                    importers[found.name].add(node)
        lazy = {
            name: frozenset(node.module for node in nodes)
            for name, nodes in importers.items()
            if all(node.name not in (IMPORTED, BODY) for node in nodes)
        }
        return {
            distribution: modules
            for name, modules in lazy.items()
            for distribution in distributions([name], cache=self._cache)
        }

    def _symbols(self, reached: Iterable[SymbolNode]) -> dict[SymbolNode, Symbol]:
        found = ((node, self._graph.symbol(node)) for node in reached)
        return {node: symbol for node, symbol in found if symbol is not None}

    def keep_sources(self, closure: CodeClosure, archive: SourceArchive) -> None:
        """Archive the modules of a closure as this snapshot saw them; one edited since is left.

        Args:
            closure: What a stage executes.
            archive: Where versions are kept by digest.

        """
        for module in sorted({symbol.partition(":")[0] for symbol in closure.symbols}):
            version = self._tree.version(module)
            if version is None or archive.has(module, version):
                continue
            text = self._tree.text(module)
            if text is not None and text.digest == version:
                archive.keep(module, text)
        for file in closure.data:
            archive.keep_data(file, self._tree.seen.digest(file))

    def respelled(self, closure: CodeClosure, names: Renaming) -> dict[str, str]:
        """The symbols of a closure as a version would know them in which modules had other names.

        Args:
            closure: A closure of this snapshot.
            names: The former names of modules.

        Returns:
            `module:symbol` by its former name -> digest of the same code, spelled with those names.

        """
        modules = {symbol.partition(":")[0] for symbol in closure.symbols}
        tables = {module: self._symbols_of_then(module, names) for module in modules}
        respelled: dict[str, str] = {}
        for symbol, digest in closure.symbols.items():
            module, _, name = symbol.partition(":")
            known = tables[module].get(name)
            respelled[f"{names.former(module)}:{name}"] = known.digest if known else digest
        return respelled

    def _symbols_of_then(self, module: str, names: Renaming) -> Mapping[str, Symbol]:
        text = self._tree.text(module)
        if text is None:
            return {}
        with room_to_recurse():
            return parse_module(
                text.source,
                names.former(module),
                is_package=text.is_package,
                packages=self._packages,
                names=names,
            ).table.symbols

    def _start(self, entry: str) -> SymbolNode:
        module, _, name = entry.partition(":")
        table = self._tree.table(module)
        if table is None:
            raise UserError(f"entry '{entry}': there is no module {module}; correct the name")
        if name not in table.symbols:
            hint = nearest(name, table.symbols)
            raise UserError(f"entry '{entry}': {module} does not define '{name}'{hint}")
        return SymbolNode(module, name)

    def _reach(
        self, starts: Sequence[SymbolNode], given: Sequence[str]
    ) -> tuple[set[SymbolNode], dict[str, set[str]]]:
        reasons: dict[str, set[str]] = defaultdict(set)
        reached = {node for start in starts for node in self._graph.entry(start).nodes}
        reached.update(starts)
        pending = list(reached)
        while pending:
            edges = self._graph.edges(pending.pop())
            for module, reason in edges.notes.items():
                reasons[module].add(reason)
            fresh = edges.nodes.keys() - reached
            if not pending and not fresh:
                known = self._symbols(reached)
                named = named_in_text(self._tree, known, reached, given, reasons)
                scripts = self._files.scripts(known)
                named |= {SymbolNode(each, kind) for each in scripts for kind in (WHOLE, MAIN)}
                named |= subclasses_asked_for(self._tree, reached, known)
                fresh = {node for node in named if self._graph.counts(node.module)} - reached
            reached |= fresh
            pending += fresh
        return reached, reasons


def _texts(symbols: Mapping[SymbolNode, Symbol], reasons: dict[str, set[str]]) -> dict[str, str]:
    """How functions are written, where reached code reads that."""
    readers = {
        f"{reason} of {node.module}"
        for node, symbol in symbols.items()
        for reason in symbol.reads_text
    }
    names = {reader.partition(" ")[0] for reader in readers}
    if names <= OF_SIGNATURES and (len(names) < 2 or "signature" not in names):
        return {}
    reasons["the text of every function"] |= readers
    written = ((node, symbol.text) for node, symbol in symbols.items() if symbol.text)
    return {f"{node.module}:{node.name} <text>": text for node, text in written}
