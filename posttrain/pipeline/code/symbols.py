"""The symbols of one module: what each is defined by, and what it uses."""

import ast
import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Self

from posttrain.pipeline.code.imports import Import, import_bindings
from posttrain.pipeline.code.lookups import evaluated
from posttrain.pipeline.code.normalise import normalise, parameters, type_only_imports
from posttrain.pipeline.code.scan import Part, Scanner
from posttrain.pipeline.code.scopes import Chain

BODY = "<body>"

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ASSIGNMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign)


class Symbol(NamedTuple):
    """A name of a module, or its `<body>`: the statements that do something when it is imported.

    Chains are written `name.attribute` where they start in this module, `module:attribute` where
    they are absolute. `targets` are what the name stands for where an import binds it.
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
    decorators: Sequence[str] = ()
    bases: Sequence[str] = ()
    hooks_subclasses: bool = False
    signature: Sequence[str] = ()


class Node(NamedTuple):
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
    source: bytes, module: str, *, is_package: bool, packages: Collection[str]
) -> Definitions:
    """Parse and scan a module; raises SyntaxError or ValueError where it is not Python."""
    tree = ast.parse(source)
    builder = _Builder(module, is_package=is_package, packages=packages)
    builder.see_type_checkers(type_only_imports(tree))
    builder.see_signatures(tree.body)
    normalise(tree)
    builder.see_block(tree.body, ())
    return Definitions(builder.nodes, builder.table())


class _Builder:
    """Sorts the top-level statements of a module into definitions and effects."""

    def __init__(self, module: str, *, is_package: bool, packages: Collection[str]) -> None:
        self._module = module
        self._is_package = is_package
        self._scanner = Scanner(module, is_package=is_package, packages=packages)
        self.nodes: dict[str, list[ast.AST]] = defaultdict(list)
        self._parts: dict[str, list[Part]] = defaultdict(list)
        self._facts: dict[str, dict[str, Any]] = defaultdict(dict)
        self._imports: list[str] = []
        self._stars: list[str] = []
        self._type_only: dict[str, str] = {}

    def table(self) -> ModuleTable:
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

    def see_block(self, statements: Iterable[ast.stmt], guards: tuple[Part, ...]) -> None:
        for node in statements:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._see_import(node, guards)
            elif isinstance(node, _DEFINITIONS):
                self._see_definition(node, guards)
            elif isinstance(node, ast.If):
                test = self._scanner.scan(node.test)
                self.see_block(node.body, (*guards, test))
                self.see_block(node.orelse, (*guards, test, Part(digest="else")))
            elif isinstance(node, ast.Try | ast.TryStar):
                self._see_try(node, guards)
            elif not isinstance(node, ast.Pass):
                self._see_statement(node, guards)

    def _see_try(self, node: ast.Try | ast.TryStar, guards: tuple[Part, ...]) -> None:
        self.see_block(node.body, guards)
        for handler in node.handlers:
            caught = self._scanner.scan(handler.type) if handler.type else Part(digest="except")
            self.see_block(handler.body, (*guards, caught))
        self.see_block(node.orelse, guards)
        self.see_block(node.finalbody, guards)

    def _see_import(self, node: Import, guards: tuple[Part, ...]) -> None:
        for name, target, loaded in self._bindings(node):
            self._imports.append(loaded)
            if name == "*":
                self._stars.append(target.removesuffix(":"))
                continue
            part = Part(digest=f"import {target}", targets={name: [target]})
            self._define(name, _as_statement(name, target), (*guards, part))

    def _see_definition(self, node: Any, guards: tuple[Part, ...]) -> None:
        part = self._scanner.scan(node)
        self._define(node.name, node, (*guards, part))
        facts = self._facts[node.name]
        facts["is_function"] = not isinstance(node, ast.ClassDef)
        callers = [self._chain(decorator) for decorator in node.decorator_list]
        if isinstance(node, ast.ClassDef):
            callers += [self._chain(key.value) for key in node.keywords if key.arg == "metaclass"]
            facts["bases"] = [chain for base in node.bases if (chain := self._chain(base))]
            facts["hooks_subclasses"] = _hooks_subclasses(node, part)
        facts["decorators"] = [chain for chain in callers if chain]

    def _see_statement(self, node: ast.stmt, guards: tuple[Part, ...]) -> None:
        """An assignment defines; an assignment into an object, and all else, is an effect."""
        part = self._scanner.scan(node)
        parts = (*guards, part)
        for name in part.bound:
            self._define(name, node, parts)
        if not isinstance(node, _ASSIGNMENTS) or not _only_names(node) or "_" in part.bound:
            self._define(BODY, node, parts)
        self._imports += part.imports

    def _define(self, name: str, node: ast.AST, parts: Iterable[Part]) -> None:
        self.nodes[name].append(node)
        self._parts[name] += parts

    def _bindings(self, node: Import) -> list[Any]:
        return import_bindings(node, module=self._module, is_package=self._is_package)

    def _chain(self, node: ast.expr) -> str:
        """The chain that a decorator or base starts with, looking through calls and subscripts."""
        names: list[str] = []
        while not isinstance(node, ast.Name):
            if isinstance(node, ast.Attribute):
                names.append(node.attr)
                node = node.value
            elif isinstance(node, ast.Call):
                node, names = node.func, []
            elif isinstance(node, ast.Subscript):
                node, names = node.value, []
            else:
                return ""
        return ".".join([node.id, *reversed(names)])


def written(chain: Chain) -> str:
    """A chain as text: `name.attribute`, or `module:attribute` where its root is absolute."""
    root, *rest = chain
    return root + ".".join(rest) if root.endswith(":") else ".".join(chain)


def unparsed(nodes: Sequence[ast.AST]) -> str:
    """Normalised statements as text, the way the formatter of the syntax tree writes them."""
    return "\n".join(ast.unparse(node) for node in nodes) + "\n"


def _merged(name: str, parts: list[Part], facts: dict[str, Any]) -> Symbol:
    """One symbol from everything that defines it, in the order of the file."""
    digests = "\n".join(part.digest for part in parts)
    return Symbol(
        hashlib.sha256(digests.encode()).hexdigest(),
        uses=_joined([[written(use) for use in part.uses] for part in parts]),
        targets=_joined([part.targets.get(name, []) for part in parts]),
        imports=_joined([part.imports for part in parts]),
        dynamic=[[written(chain), why] for part in parts for chain, why in part.dynamic],
        opaque=_joined([part.opaque for part in parts]),
        strings=_joined([part.strings for part in parts]),
        imports_by_name=any(part.imports_by_name for part in parts),
        **facts,
    )


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


def _hooks_subclasses(node: ast.ClassDef, part: Part) -> bool:
    """Whether the class learns of its subclasses, when they are defined or by asking for them."""
    if any(reason.startswith("__subclasses__") for reason in part.opaque):
        return True
    methods = (stmt.name for stmt in node.body if isinstance(stmt, _DEFINITIONS))
    return "__init_subclass__" in methods


def _as_statement(name: str, target: str) -> Import:
    module, _, attribute = target.partition(":")
    spelled = attribute or module
    alias = ast.alias(spelled, None if spelled == name else name)
    return ast.ImportFrom(module, [alias], 0) if attribute else ast.Import([alias])


def _unique(items: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(items))
