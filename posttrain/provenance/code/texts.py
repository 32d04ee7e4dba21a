"""What code names in text: modules that it imports so, scripts that it starts, folders of files."""

from collections.abc import Collection, Iterable, Mapping

from posttrain.provenance.code.symbols import MAIN, Symbol, SymbolNode
from posttrain.provenance.code.tree import SourceTree

WHOLE = "*"
FILES = "<files>"


def named_in_text(
    tree: SourceTree,
    symbols: Mapping[SymbolNode, Symbol],
    reached: Collection[SymbolNode],
    given: Iterable[str],
    notes: dict[str, set[str]],
) -> set[SymbolNode]:
    """Find the nodes that text in reached code leads to, where some of it looks for code or files.

    Args:
        tree: The first-party source.
        symbols: What was reached, by node.
        reached: The nodes.
        given: Text from outside, such as parameters, that may name modules as well.
        notes: By module what cannot be told; added to.

    Returns:
        Nodes of modules and files that are named.

    """
    found: set[SymbolNode] = set()
    loading = {node.module for node, symbol in symbols.items() if symbol.imports_by_name}
    if loading:
        for node, symbol in symbols.items():
            for text in (text for text in symbol.strings if not text.endswith(".py")):
                if "." in text or node.module in loading:
                    found |= _modules(tree, text)
        for text in given:
            found |= _modules(tree, text)
    for module in {node.module for node in reached if node.name == FILES}:
        found |= _find_named_files(
            tree, module, [s for node, s in symbols.items() if node.module == module], notes
        )
    return found


def subclasses_asked_for(
    tree: SourceTree, reached: Iterable[SymbolNode], symbols: Mapping[SymbolNode, Symbol]
) -> set[SymbolNode]:
    """Find the classes that reached modules base on others, where some code asks for subclasses.

    Args:
        tree: The first-party source.
        reached: The nodes.
        symbols: Those of them that have a definition.

    Returns:
        Nodes of classes; none where nothing asks.

    """
    reasons = (reason for symbol in symbols.values() for reason in symbol.opaque)
    if not any(reason.startswith("__subclasses__") for reason in reasons):
        return set()
    return {
        SymbolNode(module, name)
        for module in {node.module for node in reached}
        for name, symbol in tree.symbols(module).items()
        if symbol.is_class and symbol.bases
    }


def loads_by_name(symbols: Mapping[SymbolNode, Symbol]) -> bool:
    """Whether some of the code imports modules by names that are known when it runs."""
    return any(symbol.imports_by_name for symbol in symbols.values())


def package_of(tree: SourceTree, module: str) -> str:
    """Name the package that a module is or lies in.

    Args:
        tree: Knows which modules are packages.
        module: Dotted name.

    Returns:
        Dotted name; the module's own where it lies in none.

    """
    return module if tree.is_package(module) else module.rpartition(".")[0] or module


def _modules(tree: SourceTree, text: str) -> set[SymbolNode]:
    """The module that a dotted name starts with, and all in it where it is a package."""
    parts = text.rstrip(".").replace(":", ".").split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    name = next((name for name in names if tree.is_first_party(name) and tree.place(name)), None)
    if name is None:
        return set()
    inside = tree.submodules(name) if "." in text else [f"{name}.__main__"]
    modules = [name, *(each for each in inside if tree.place(each))]
    return {SymbolNode(each, kind) for each in modules for kind in (WHOLE, MAIN)}


def _find_named_files(
    tree: SourceTree, module: str, symbols: list[Symbol], notes: dict[str, set[str]]
) -> set[SymbolNode]:
    """Scripts beside a module that it names, and the folders of packages that its text leads to."""
    found: set[SymbolNode] = set()
    package = package_of(tree, module)
    for text in (text for symbol in symbols for text in symbol.strings):
        if text.endswith(".py"):
            script = f"{package}.{text.removesuffix('.py')}"
            found |= (
                {SymbolNode(script, WHOLE), SymbolNode(script, MAIN)}
                if tree.place(script)
                else set()
            )
        elif tree.place(text) is not None:
            found.add(SymbolNode(text, FILES))
    parts = package.split(".")
    # The first step up leads to the module's own folder.
    steps = sum(symbol.climbs for symbol in symbols) - 1
    if steps >= len(parts) or tree.is_at_top(module):
        notes[module].add("it reads files above its package: only those that it names count")
    climbed = max(1, len(parts) - max(0, steps))
    return found | {SymbolNode(".".join(parts[:climbed]), FILES)}
