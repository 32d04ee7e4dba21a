"""The symbols of one module: what each is defined by, and what it uses."""

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Self

from posttrain.provenance.code import scan_scopes, scan_uses
from posttrain.provenance.code.effects import (
    calls_at_import,
    changes_its_arguments,
    changes_others,
    is_fresh,
    is_plain,
)
from posttrain.provenance.code.imports import Import, import_bindings
from posttrain.provenance.code.lookups import chain, evaluated
from posttrain.provenance.code.normalize import (
    guarded_by_main,
    normalize,
    parameters,
    type_only_imports,
)
from posttrain.provenance.code.scan import Scanned, Scanner
from posttrain.provenance.code.scan_outside import COMPUTED
from posttrain.provenance.code.scan_programs import literal_texts
from posttrain.provenance.code.scan_scopes import renamed_loader
from posttrain.provenance.code.scopes import ScopeChain
from posttrain.stage.hashing import sha256_of

BODY = "<body>"
MAIN = "<main>"
DOC = "__doc__"

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_HANDLERS = {**scan_uses.HANDLERS, **scan_scopes.HANDLERS}
_ASSIGNMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign)


class Symbol(NamedTuple):
    """A name of a module, or its `<body>`: the statements that do something when it is imported.

    Chains are written `name.attribute` where they start in this module, `module:attribute` where
    they are absolute. `targets` are what the name stands for where an import binds it. `calls` are
    made when the definition is executed, with what is `handed` to each; `text` is a digest of the
    lines as they are written. `paths` are literals that could name files, `places` the words by
    which it asks where code lies, `environment` the variables that it reads.
    """

    digest: str
    is_function: bool = False
    uses: Sequence[str] = ()
    targets: Sequence[str] = ()
    imports: Sequence[str] = ()
    dynamic: Sequence[Sequence[str]] = ()
    opaque: Sequence[str] = ()
    strings: Sequence[str] = ()
    imports_by_name: bool = False
    names_its_place: bool = False
    reads_text: Sequence[str] = ()
    climbs: int = 0
    calls: Sequence[str] = ()
    handed: Sequence[Sequence[str]] = ()
    bases: Sequence[str] = ()
    is_class: bool = False
    is_plain: bool = False
    changes_arguments: bool = False
    changes_others: bool = False
    hooks_subclasses: bool = False
    signature: Sequence[str] = ()
    text: str = ""
    paths: Sequence[str] = ()
    places: Sequence[str] = ()
    environment: Sequence[str] = ()


class SymbolNode(NamedTuple):
    """A symbol of a module; or the module's import, the whole of it, or the files beside it.

    A third-party package is a name without a module.
    """

    module: str
    name: str


class ModuleTable(NamedTuple):
    """All that the closure needs to know of a module; `type_only` is what type checkers see."""

    symbols: dict[str, Symbol]
    imports: list[str]
    stars: list[str]
    type_only: dict[str, str]

    @property
    def loads(self) -> list[str]:
        """Everything that some statement of it imports, inside of functions, too."""
        inside = [target for symbol in self.symbols.values() for target in symbol.imports]
        return _unique([*self.imports, *(f"{star}:" for star in self.stars), *inside])

    @classmethod
    def from_json(cls, row: Any) -> Self:
        """The inverse of `json.dumps(table)`."""
        symbols, imports, stars, type_only = row
        return cls({name: Symbol(*s) for name, s in symbols.items()}, imports, stars, type_only)


class Definitions(NamedTuple):
    """The statements that define a module's symbols, with the parts scanned from them."""

    nodes: dict[str, list[ast.AST]]
    table: ModuleTable


def parse_module(
    source: bytes,
    module: str,
    *,
    is_package: bool,
    packages: Collection[str],
    names: ast.NodeTransformer | None = None,
) -> Definitions:
    """Parse and scan a module.

    Args:
        source: Its text.
        module: Its absolute name.
        is_package: True for an `__init__.py`.
        packages: Names of the first-party packages.
        names: Spells its imports in another way before they are looked at.

    Returns:
        What it defines, and what each definition uses.

    Raises:
        SyntaxError: It is not Python.
        ValueError: It is no text.

    """
    tree = ast.parse(source)
    if names is not None:
        tree = names.visit(tree)
    builder = _Builder(module, is_package=is_package, packages=packages)
    builder.see_type_checkers(type_only_imports(tree))
    builder.see_signatures(tree.body)
    builder.see_text(tree, source.splitlines())
    for node in guarded_by_main(tree):
        builder.see_main(node)
    normalize(tree)
    builder.see_block(tree.body, ())
    return Definitions(builder.nodes, builder.table())


class _Builder:
    """Sorts the top-level statements of a module into definitions and effects."""

    def __init__(self, module: str, *, is_package: bool, packages: Collection[str]) -> None:
        self._module = module
        self._is_package = is_package
        self._scanner = Scanner(
            module, is_package=is_package, packages=packages, handlers=_HANDLERS
        )
        self.nodes: dict[str, list[ast.AST]] = defaultdict(list)
        self._parts: dict[str, list[Scanned]] = defaultdict(list)
        self._facts: dict[str, dict[str, Any]] = defaultdict(dict)
        self._imports: list[str] = []
        self._stars: list[str] = []
        self._type_only: dict[str, str] = {}
        self._packages = packages
        self._read_after: list[tuple[list[Scanned], str, int]] = []
        self._shared: set[str] = set()

    def table(self) -> ModuleTable:
        # Where a name is bound more than once, a value depends on how often it was before.
        for parts, name, times in self._read_after:
            if len(self.nodes.get(name, ())) > (name != BODY):
                parts.append(Scanned(digest=f"{name} after {times}"))
        for name in self._shared & self._facts.keys():
            self._facts[name]["is_plain"] = False
        symbols = {
            name: _merged(name, parts, self._facts[name]) for name, parts in self._parts.items()
        }
        return ModuleTable(symbols, _unique(self._imports), self._stars, self._type_only)

    def see_type_checkers(self, statements: Iterable[Import]) -> None:
        for node in statements:
            self._type_only |= {binding.name: binding.target for binding in self._bindings(node)}

    def see_signatures(self, statements: Iterable[ast.stmt]) -> None:
        """Annotations of parameters: the types of what an entry is handed from outside."""
        for node in statements:
            if isinstance(node, ast.FunctionDef):
                found = [evaluated(a.annotation) for a in parameters(node.args) if a.annotation]
                uses = [use for annotation in found for use in self._scanner.scan(annotation).uses]
                self._facts[node.name]["signature"] = [written(use) for use in _unique(uses)]

    def see_text(self, tree: ast.Module, lines: list[bytes]) -> None:
        """The lines of definitions, for code that reads them; the docstring of the module."""
        self._scanner.texts = literal_texts(tree.body)
        if documentation := ast.get_docstring(tree, clean=False):
            self._define(DOC, tree.body[0], [Scanned(digest=sha256_of(documentation.encode()))])
        for node in tree.body:
            if isinstance(node, _DEFINITIONS):
                written_lines = b"\n".join(lines[node.lineno - 1 : node.end_lineno])
                self._facts[node.name]["text"] = sha256_of(written_lines)
        nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Global))
        self._shared |= {name for node in nodes for name in node.names}

    def see_main(self, node: ast.stmt) -> None:
        self._define(MAIN, node, [self._scanner.scan(node)])

    def see_block(self, statements: Iterable[ast.stmt], guards: tuple[Scanned, ...]) -> None:
        for node in statements:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._see_import(node, guards)
            elif isinstance(node, _DEFINITIONS):
                self._see_definition(node, guards)
            elif isinstance(node, ast.If):
                test = self._scanner.scan(node.test)
                self.see_block(node.body, (*guards, test))
                self.see_block(node.orelse, (*guards, test, Scanned(digest="else")))
            elif isinstance(node, ast.Try | ast.TryStar):
                self._see_try(node, guards)
            elif not isinstance(node, ast.Pass):
                self._see_statement(node, guards)

    def _see_try(self, node: ast.Try | ast.TryStar, guards: tuple[Scanned, ...]) -> None:
        self.see_block(node.body, guards)
        for handler in node.handlers:
            caught = self._scanner.scan(handler.type) if handler.type else Scanned(digest="except")
            self.see_block(handler.body, (*guards, caught))
        self.see_block(node.orelse, guards)
        self.see_block(node.finalbody, guards)

    def _see_import(self, node: Import, guards: tuple[Scanned, ...]) -> None:
        for name, target, loaded in self._bindings(node):
            self._imports.append(loaded)
            if guards and loaded.partition(".")[0].partition(":")[0] in self._packages:
                # What the import does is done only where it is come by.
                self._define(BODY, _as_statement(name, target), guards)
            if name == "*":
                self._stars.append(target.removesuffix(":"))
                continue
            part = Scanned(digest=f"import {target}", targets={name: [target]})
            if renamed_loader(name, target):
                part.opaque.append(f"{target.partition(':')[2]} is called {name}")
                part.imports_by_name = True
            self._define(name, _as_statement(name, target), (*guards, part))

    def _see_definition(self, node: Any, guards: tuple[Scanned, ...]) -> None:
        part = self._scanner.scan(node)
        self._define(node.name, node, (*guards, part))
        facts = self._calling(node.name, node)
        facts["is_class"] = isinstance(node, ast.ClassDef)
        facts["is_function"] = not facts["is_class"]
        facts["changes_others"] = changes_others(node, {use[0] for use in part.uses})
        if isinstance(node, ast.ClassDef):
            metaclasses = [key.value for key in node.keywords if key.arg == "metaclass"]
            facts["bases"] = [chain(base) for base in (*node.bases, *metaclasses)]
            facts["hooks_subclasses"] = _hooks_subclasses(node, part)
        else:
            facts["changes_arguments"] = changes_its_arguments(node)

    def _calling(self, name: str, node: ast.AST) -> dict[str, Any]:
        facts = self._facts[name]
        calls, handed = calls_at_import(node)
        facts["calls"] = [*facts.get("calls", ()), *calls]
        facts["handed"] = [*facts.get("handed", ()), *handed]
        return facts

    def _see_statement(self, node: ast.stmt, guards: tuple[Scanned, ...]) -> None:
        """An assignment defines; an assignment into an object, and all else, is an effect."""
        part = self._scanner.scan(node)
        parts = [*guards, part]
        if "__all__" in part.bound:
            constants = (each for each in ast.walk(node) if isinstance(each, ast.Constant))
            part.strings += [each.value for each in constants if isinstance(each.value, str)]
        self._stars += [each.removesuffix(":") for each in part.targets.get("*", ())]
        effect = not isinstance(node, _ASSIGNMENTS) or not _only_names(node) or "_" in part.bound
        if isinstance(node, ast.AugAssign):
            made = [each for name in part.bound for each in self.nodes[name]]
            effect = effect or not all(is_fresh(each) for each in made[:1])
        reads = {BODY, *(use[0] for use in part.uses)} - part.bound if part.uses else set()
        for name in part.bound:
            plain = is_plain(node) and name not in self.nodes
            self._define(name, node, parts)
            self._calling(name, node)["is_plain"] = plain
            for each in sorted(reads):
                times = len(self.nodes.get(each, ()))
                self._read_after.append((self._parts[name], each, times))
        if effect:
            self._define(BODY, node, parts)
        self._imports += part.imports

    def _define(self, name: str, node: ast.AST, parts: Iterable[Scanned]) -> None:
        self.nodes[name].append(node)
        self._parts[name] += parts

    def _bindings(self, node: Import) -> list[Any]:
        return import_bindings(node, module=self._module, is_package=self._is_package)


def written(chain: ScopeChain) -> str:
    """A chain as text: `name.attribute`, or `module:attribute` where its root is absolute."""
    root, *rest = chain
    return root + ".".join(rest) if root.endswith(":") else ".".join(chain)


def unparsed(nodes: Sequence[ast.AST]) -> str:
    """Normalized statements as text, the way the formatter of the syntax tree writes them."""
    return "\n".join(ast.unparse(node) for node in nodes) + "\n"


def _merged(name: str, parts: list[Scanned], facts: dict[str, Any]) -> Symbol:
    """One symbol from everything that defines it, in the order of the file."""
    digests = "\n".join(part.digest for part in parts)
    return Symbol(
        sha256_of(digests),
        uses=_joined([[written(use) for use in part.uses] for part in parts]),
        targets=_joined([part.targets.get(name, []) for part in parts]),
        imports=_joined([part.imports for part in parts]),
        dynamic=[[written(use), why] for part in parts for use, why in part.dynamic],
        opaque=_joined([part.opaque for part in parts]),
        strings=_joined([part.strings for part in parts]),
        imports_by_name=any(part.imports_by_name for part in parts),
        names_its_place=any(part.names_its_place for part in parts),
        reads_text=_joined([part.reads_text for part in parts]),
        climbs=sum(part.climbs for part in parts),
        paths=_joined([part.paths for part in parts]),
        places=_joined([part.places for part in parts]),
        environment=_joined([_environment(part) for part in parts]),
        **facts,
    )


def _environment(part: Scanned) -> list[str]:
    """Names of variables; where there are more mentions than names, some name is computed."""
    computed = part.asked > len(part.environment)
    return [*part.environment, *([COMPUTED] if computed else [])]


def _joined(lists: list[list[str]]) -> list[str]:
    return lists[0] if len(lists) == 1 else _unique(item for items in lists for item in items)


def _only_names(node: Any) -> bool:
    """Whether an assignment only binds names, so that nobody sees it who does not use them."""
    targets = [*node.targets] if isinstance(node, ast.Assign) else [node.target]
    while targets:
        target = targets.pop()
        if isinstance(target, ast.Tuple | ast.List):
            targets = [*targets, *target.elts]
        elif isinstance(target, ast.Starred):
            targets = [*targets, target.value]
        elif not isinstance(target, ast.Name):
            return False
    return True


def _hooks_subclasses(node: ast.ClassDef, part: Scanned) -> bool:
    """Whether the class learns of its subclasses, when they are defined or by asking for them."""
    if any(reason.startswith("__subclasses__") for reason in part.opaque):
        return True
    if any(chain(base).endswith(("type", "Meta", "EnumType")) for base in node.bases):
        return True  # a metaclass
    methods = (stmt.name for stmt in node.body if isinstance(stmt, _DEFINITIONS))
    return "__init_subclass__" in methods


def _as_statement(name: str, target: str) -> Import:
    module, _, attribute = target.partition(":")
    spelled = attribute or module
    alias = ast.alias(spelled, None if spelled == name else name)
    return ast.ImportFrom(module, [alias], 0) if attribute else ast.Import([alias])


def _unique(items: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(items))
