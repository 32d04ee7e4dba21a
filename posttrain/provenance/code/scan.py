"""One walk over one statement: a digest of what it says, and the names that it uses."""

import ast
import copy
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Literal

from posttrain.provenance.code.imports import Import, import_bindings
from posttrain.provenance.code.lookups import (
    INTERPRETED,
    LOADERS,
    OWN_PLACE,
    READERS,
    called,
    evaluated,
    is_type_alias,
    string,
)
from posttrain.provenance.code.normalise import parameters
from posttrain.provenance.code.scopes import BY_NAME, Chain, Scope
from posttrain.stage.hashing import sha256_of

_SILENT_FIELDS = frozenset({"ctx", "kind", "type_comment"})
_RELATIVE = re.compile(r"\A\.+\w*\Z")


@dataclass(slots=True)
class Part:
    """What one statement says and uses. `dynamic` pairs a chain with how it is looked into."""

    digest: str = ""
    bound: set[str] = field(default_factory=set)
    targets: dict[str, list[str]] = field(default_factory=dict)
    uses: list[Chain] = field(default_factory=list)
    dynamic: list[tuple[Chain, str]] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    imports_by_name: bool = False
    names_its_place: bool = False
    reads_text: list[str] = field(default_factory=list)
    climbs: int = 0


class Scanner:
    """Scans the statements of one module."""

    def __init__(self, module: str, *, is_package: bool, packages: Collection[str]) -> None:
        self._module = module
        self._is_package = is_package
        self._packages = packages
        heads = "|".join(map(re.escape, packages)) or r"\Z\A"
        self._mention = re.compile(rf"\A(?:{heads})\Z|(?<![\w.])(?:{heads})(?:\.\w+)+")

    def scan(self, node: ast.AST) -> Part:
        """Digest and uses of `node`, seen as a statement or expression of the module itself."""
        self._tokens: list[str] = []
        self._part = Part()
        self._top = self._scope = Scope()
        self.visit(node)
        part, top = self._part, self._top
        part.digest = sha256_of("\n".join(self._tokens))
        part.bound, part.targets = top.bound, top.targets
        part.uses = list(dict.fromkeys(chain for chain, reason in top.uses if not reason))
        part.dynamic = [(chain, reason) for chain, reason in top.uses if reason]
        return part

    def visit(self, node: Any) -> None:
        """Dispatch on the node's type."""
        special = _SPECIAL.get(type(node))
        if special is not None:
            special(self, node)
        else:
            self._plain(node)

    def _plain(self, node: ast.AST) -> None:
        kind = type(node)
        self._tokens.append(kind.__name__)
        values = vars(node)
        for name in kind._fields:
            if name not in _SILENT_FIELDS:
                self._field(name, values.get(name))
        # Without an end, `f(1).g()` and `f().g(1)` would read alike.
        self._tokens.append(")")

    def _field(self, name: str, value: Any) -> None:
        # Empty fields are skipped, so that a Python with one more optional field agrees.
        if type(value) is list:
            if value:
                self._tokens.append(f"{name}[")
                for item in value:
                    self.visit(item)
                self._tokens.append("]")
        elif value is not None:
            self._tokens.append(name)
            self.visit(value)

    def _literal(self, value: object) -> None:
        self._tokens.append(repr(value))

    def _nothing(self, _node: None) -> None:
        """A hole in a list, such as the key of `**rest` in a dict; unlike the literal `None`."""
        self._tokens.append("-")

    def _constant(self, node: ast.Constant) -> None:
        value = node.value
        self._tokens.append(repr(value))
        if not isinstance(value, str):
            return
        self._part.strings += self._mention.findall(value)
        if value.endswith(".py"):
            self._part.strings.append(value.rpartition("/")[2])
        if value in INTERPRETED:
            self._part.opaque.append(f"python {value} at line {node.lineno}")
            self._part.imports_by_name = True
        if _RELATIVE.match(value):
            self._part.names_its_place = True

    def _name(self, node: ast.Name) -> None:
        self._tokens.append(f"${node.id}")
        self._mentions(node.id, node)
        if isinstance(node.ctx, ast.Load):
            self._scope.use((node.id,))
        else:
            self._scope.bound.add(node.id)

    def _attribute(self, node: ast.Attribute) -> None:
        self._chain(node, ())

    def _chain(self, node: ast.expr, tail: Chain) -> None:
        """Record the longest chain that starts at a name; `tail` is read from `node` afterwards."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        names.reverse()
        for name in names:
            self._mentions(name, node)
        self._tokens.append("." + ".".join(names))
        rest = (*names, *tail)
        if isinstance(node, ast.Name):
            self._tokens.append(f"${node.id}")
            self._mentions(node.id, node)
            self._scope.use((node.id, *rest))
            if node.id == "sys" and rest[:1] == ("modules",):
                self._opaque("sys.modules", node)
        elif isinstance(node, ast.Call):
            self._call(node, rest)
        else:
            self.visit(node)
        if "__subclasses__" in rest:
            self._opaque("__subclasses__", node)

    def _call(self, node: ast.Call, tail: Chain = ()) -> None:
        """A call, whose result has `tail` read from it; some calls stand for a chain themselves."""
        function = called(node.func)
        literal = string(node.args[1:] if function == "getattr" else node.args)
        if function == "getattr" and literal is not None:
            self._tokens.append(f"getattr {literal}")
            self._chain(node.args[0], (literal, *tail))
            self._field("default", node.args[2:])
            return
        if function in ("import_module", "__import__") and literal:
            self._import_literal(node, literal, tail if function == "import_module" else ())
            return
        if function == "getattr" and len(node.args) > 1:
            self._look_into(node.args[0], f"getattr by string at line {node.lineno}")
        elif function in BY_NAME and not (function == "vars" and node.args):
            self._scope.use((function,), f"{function} at line {node.lineno}")
        if function == "validate_call" and node.args:
            self._part.reads_text.append(f"{function} at line {node.lineno}")
        self._plain(node)

    def _import_literal(self, node: ast.Call, literal: str, tail: Chain) -> None:
        name = literal.lstrip(".")
        if level := len(literal) - len(name):
            parts = self._module.split(".")
            above = level - 1 if self._is_package else level
            name = ".".join([*parts[: len(parts) - above], name])
        self._tokens.append(f"import_module {name}")
        self._scope.use((f"{name}:", *tail))
        self._part.imports.append(f"{name}:")
        self._field("arguments", node.args[1:])

    def _mentions(self, name: str, node: ast.expr) -> None:
        """Names that matter wherever they stand: what they are called with may not be seen."""
        if name in LOADERS:
            self._opaque(name, node)
            self._part.imports_by_name = True
        elif name in READERS:
            self._part.reads_text.append(f"{name} at line {node.lineno}")
        elif name in OWN_PLACE:
            self._part.names_its_place = True
        elif name in ("parent", "parents", "dirname"):
            self._part.climbs += 1

    def _subscript(self, node: ast.Subscript) -> None:
        """`parents[2]` climbs three folders; the arguments of a type may be in quotes."""
        if isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
            index = node.slice.value if isinstance(node.slice, ast.Constant) else None
            self._part.climbs += index if isinstance(index, int) else len(self._module)
        self._plain(node)
        if self._scope is self._top and is_type_alias(node):
            said, self._tokens = self._tokens, []
            self.visit(evaluated(copy.deepcopy(node.slice)))
            self._tokens = said

    def _look_into(self, value: ast.expr, reason: str) -> None:
        names: list[str] = []
        while isinstance(value, ast.Attribute):
            names.append(value.attr)
            value = value.value
        if isinstance(value, ast.Name):
            self._scope.use((value.id, *reversed(names)), reason)
        else:
            self._part.opaque.append(reason)

    def _opaque(self, what: str, node: ast.expr) -> None:
        self._part.opaque.append(f"{what} at line {node.lineno}")

    def _import(self, node: Import) -> None:
        for name, target, loaded in import_bindings(
            node, module=self._module, is_package=self._is_package
        ):
            self._tokens.append(f"import {name} {target} {loaded}")
            if renamed_loader(name, target):
                self._part.opaque.append(f"{target.partition(':')[2]} is called {name}")
                self._part.imports_by_name = True
            self._scope.bound.add(name)
            self._scope.targets.setdefault(name, []).append(target)
            self._part.imports.append(loaded)

    def _global(self, node: ast.Global) -> None:
        self._tokens.append(f"global {sorted(node.names)}")
        self._scope.global_names.update(node.names)

    def _nonlocal(self, node: ast.Nonlocal) -> None:
        self._tokens.append(f"nonlocal {sorted(node.names)}")
        self._scope.nonlocal_names.update(node.names)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._tokens.append(f"{type(node).__name__} ${node.name}")
        self._scope.bound.add(node.name)
        self._field("decorators", node.decorator_list)
        self._field("returns", node.returns)
        self._plain(node.args)  # defaults belong to the enclosing scope
        self._enter("function")
        self._scope.bind(arg.arg for arg in parameters(node.args))
        self._field("body", node.body)
        self._leave()

    def _lambda(self, node: ast.Lambda) -> None:
        self._tokens.append("Lambda")
        self._plain(node.args)  # defaults belong to the enclosing scope
        self._enter("function")
        self._scope.bind(arg.arg for arg in parameters(node.args))
        self.visit(node.body)
        self._leave()

    def _argument(self, node: ast.arg) -> None:
        self._tokens.append(f"arg ${node.arg}")
        self._field("annotation", node.annotation)

    def _class(self, node: ast.ClassDef) -> None:
        self._tokens.append(f"ClassDef ${node.name}")
        self._scope.bound.add(node.name)
        self._field("decorators", node.decorator_list)
        self._field("bases", node.bases)
        self._field("keywords", node.keywords)
        self._enter("class")
        self._field("body", node.body)
        self._leave()

    def _field_of_class(self, node: ast.AnnAssign) -> None:
        """An annotated field: pydantic and dataclasses read its annotation, also one in quotes."""
        self._tokens.append("AnnAssign")
        self.visit(node.target)
        self._field("annotation", evaluated(node.annotation))
        self._field("value", node.value)

    def _comprehension(self, node: Any) -> None:
        first, *others = node.generators
        self._tokens.append(type(node).__name__)
        self._field("is_async", first.is_async)
        self.visit(first.iter)  # evaluated in the enclosing scope
        self._enter("comprehension")
        self.visit(first.target)
        self._field("ifs", first.ifs)
        self._field("generators", others)
        for name in ("key", "value", "elt"):
            self._field(name, vars(node).get(name))
        self._leave()

    def _walrus(self, node: ast.NamedExpr) -> None:
        self._tokens.append(f"NamedExpr ${node.target.id}")
        self._scope.bind_walrus(node.target.id)
        self.visit(node.value)

    def _binding_field(self, node: ast.AST) -> None:
        """Nodes that bind a name which they hold as plain text."""
        self._plain(node)
        for name in ("name", "rest"):
            value = vars(node).get(name)
            if isinstance(value, str):
                self._scope.bound.add(value)

    def _enter(self, kind: Literal["class", "function", "comprehension"]) -> None:
        self._scope = Scope(self._scope, kind)

    def _leave(self) -> None:
        scope = self._scope
        self._part.opaque += scope.leave()
        assert scope.parent is not None
        self._scope = scope.parent


def renamed_loader(name: str, target: str) -> bool:
    """Whether an import gives another name to what loads modules by name."""
    loader = target.partition(":")[2]
    return loader in LOADERS and loader != name


_SPECIAL: dict[type, Callable[[Scanner, Any], None]] = {
    NoneType: Scanner._nothing,
    bool: Scanner._literal,
    str: Scanner._literal,
    int: Scanner._literal,
    ast.Constant: Scanner._constant,
    ast.Name: Scanner._name,
    ast.Attribute: Scanner._attribute,
    ast.Call: Scanner._call,
    ast.Subscript: Scanner._subscript,
    ast.Import: Scanner._import,
    ast.ImportFrom: Scanner._import,
    ast.Global: Scanner._global,
    ast.Nonlocal: Scanner._nonlocal,
    ast.FunctionDef: Scanner._function,
    ast.AsyncFunctionDef: Scanner._function,
    ast.Lambda: Scanner._lambda,
    ast.arg: Scanner._argument,
    ast.ClassDef: Scanner._class,
    ast.AnnAssign: Scanner._field_of_class,
    ast.ListComp: Scanner._comprehension,
    ast.SetComp: Scanner._comprehension,
    ast.DictComp: Scanner._comprehension,
    ast.GeneratorExp: Scanner._comprehension,
    ast.NamedExpr: Scanner._walrus,
    ast.ExceptHandler: Scanner._binding_field,
    ast.MatchAs: Scanner._binding_field,
    ast.MatchStar: Scanner._binding_field,
    ast.MatchMapping: Scanner._binding_field,
}
