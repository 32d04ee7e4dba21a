"""What a statement uses: chains of names, calls that stand for names, text that names code."""

import ast
import copy
import re
from collections.abc import Mapping
from types import NoneType

from posttrain.provenance.code import scan_outside, scan_programs
from posttrain.provenance.code.lookups import (
    INTERPRETED,
    LOADERS,
    OWN_PLACE,
    READERS,
    called,
    chain,
    evaluated,
    is_type_alias,
    joined,
    string,
)
from posttrain.provenance.code.scan import Handler, Scanner
from posttrain.provenance.code.scopes import BY_NAME, ScopeChain

_LOADED_BY_NAME = frozenset({"sys.modules.get", "sys.modules.__getitem__"})
_RELATIVE = re.compile(r"\A\.+\w*\Z")


def _see_literal(scanner: Scanner, value: object) -> None:
    scanner.tokens.append(repr(value))


def _see_nothing(scanner: Scanner, _node: None) -> None:
    """A hole in a list, such as the key of `**rest` in a dict; unlike the literal `None`."""
    scanner.tokens.append("-")


def _see_constant(scanner: Scanner, node: ast.Constant) -> None:
    value = node.value
    scanner.tokens.append(repr(value))
    if not isinstance(value, str):
        return
    scanner.found.strings += scanner.mention.findall(value)
    scan_outside.see_text(scanner, value)
    if value.endswith(".py"):
        scanner.found.strings.append(value.rpartition("/")[2])
    if value in INTERPRETED and node not in scanner.understood:
        scanner.found.opaque.append(f"python {value} at line {node.lineno}")
        scanner.found.imports_by_name = True
    if _RELATIVE.match(value):
        scanner.found.names_its_place = True


def _see_name(scanner: Scanner, node: ast.Name) -> None:
    scanner.tokens.append(f"${node.id}")
    _see_mention(scanner, node.id, node)
    if isinstance(node.ctx, ast.Load):
        scanner.scope.use((node.id,))
    else:
        scanner.scope.bound.add(node.id)


def _see_attribute(scanner: Scanner, node: ast.Attribute) -> None:
    _see_chain(scanner, node, ())


def _see_chain(scanner: Scanner, node: ast.expr, tail: ScopeChain) -> None:
    """Record the longest chain that starts at a name; `tail` is read from `node` afterwards."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    names.reverse()
    for name in names:
        _see_mention(scanner, name, node)
    scanner.tokens.append("." + ".".join(names))
    rest = (*names, *tail)
    if isinstance(node, ast.Name):
        scanner.tokens.append(f"${node.id}")
        _see_mention(scanner, node.id, node)
        scanner.scope.use((node.id, *rest))
        if node.id == "sys" and rest[:1] == ("modules",):
            scanner.opaque("sys.modules", node)
    elif isinstance(node, ast.Call):
        _see_call(scanner, node, rest)
    else:
        scanner.visit(node)
    if "__subclasses__" in rest:
        scanner.opaque("__subclasses__", node)


def _see_call(scanner: Scanner, node: ast.Call, tail: ScopeChain = ()) -> None:
    """A call, whose result has `tail` read from it; some calls stand for a chain themselves."""
    function = called(node.func)
    scan_outside.see_call(scanner, node)
    scan_programs.see_words(scanner, node.args)
    if (text := joined(node)) is not None:
        scanner.found.strings += scanner.mention.findall(text)
        scan_outside.see_text(scanner, text)
    if chain(node.func) in _LOADED_BY_NAME and (name := string(node.args)) is not None:
        scanner.scope.use((f"{name}:",))
    literal = string(node.args[1:] if function == "getattr" else node.args)
    if function == "getattr" and literal is not None:
        scanner.tokens.append(f"getattr {literal}")
        _see_chain(scanner, node.args[0], (literal, *tail))
        scanner.field("default", node.args[2:])
        return
    if function in ("import_module", "__import__") and literal:
        _see_literal_import(scanner, node, literal, tail if function == "import_module" else ())
        return
    if function == "getattr" and len(node.args) > 1:
        _see_lookup(scanner, node.args[0], f"getattr by string at line {node.lineno}")
    elif function in BY_NAME and not (function == "vars" and node.args):
        scanner.scope.use((function,), f"{function} at line {node.lineno}")
    if function == "validate_call" and node.args:
        scanner.found.reads_text.append(f"{function} at line {node.lineno}")
    scanner.plain(node)


def _see_literal_import(scanner: Scanner, node: ast.Call, literal: str, tail: ScopeChain) -> None:
    name = literal.lstrip(".")
    if level := len(literal) - len(name):
        parts = scanner.module.split(".")
        above = level - 1 if scanner.is_package else level
        name = ".".join([*parts[: len(parts) - above], name])
    scanner.tokens.append(f"import_module {name}")
    scanner.scope.use((f"{name}:", *tail))
    scanner.found.imports.append(f"{name}:")
    scanner.field("arguments", node.args[1:])


def _see_mention(scanner: Scanner, name: str, node: ast.expr) -> None:
    """Names that matter wherever they stand: what they are called with may not be seen."""
    if name in LOADERS:
        scanner.opaque(name, node)
        scanner.found.imports_by_name = True
    elif name in READERS:
        scanner.found.reads_text.append(f"{name} at line {node.lineno}")
    elif name in OWN_PLACE:
        scanner.found.names_its_place = True
    elif name in ("parent", "parents", "dirname"):
        scanner.found.climbs += 1
    scan_outside.see_mention(scanner, name)


def _see_subscript(scanner: Scanner, node: ast.Subscript) -> None:
    """`parents[2]` climbs three folders; the arguments of a type may be in quotes."""
    if isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        scanner.found.climbs += index if isinstance(index, int) else len(scanner.module)
    scan_outside.see_subscript(scanner, node)
    if chain(node.value) == "sys.modules" and (name := string([node.slice])) is not None:
        scanner.scope.use((f"{name}:",))
    scanner.plain(node)
    if scanner.scope is scanner.top and is_type_alias(node):
        said, scanner.tokens = scanner.tokens, []
        scanner.visit(evaluated(copy.deepcopy(node.slice)))
        scanner.tokens = said


def _see_lookup(scanner: Scanner, value: ast.expr, reason: str) -> None:
    names: list[str] = []
    while isinstance(value, ast.Attribute):
        names.append(value.attr)
        value = value.value
    if isinstance(value, ast.Name):
        scanner.scope.use((value.id, *reversed(names)), reason)
    else:
        scanner.found.opaque.append(reason)


HANDLERS: Mapping[type, Handler] = {
    **scan_outside.HANDLERS,
    **scan_programs.HANDLERS,
    NoneType: _see_nothing,
    bool: _see_literal,
    str: _see_literal,
    int: _see_literal,
    ast.Constant: _see_constant,
    ast.Name: _see_name,
    ast.Attribute: _see_attribute,
    ast.Call: _see_call,
    ast.Subscript: _see_subscript,
}
