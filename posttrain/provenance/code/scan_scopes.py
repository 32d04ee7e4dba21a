"""What a statement binds, and in which scope: definitions, imports, comprehensions."""

import ast
from collections.abc import Mapping
from typing import Any

from posttrain.provenance.code.imports import Import, import_bindings
from posttrain.provenance.code.lookups import LOADERS, evaluated
from posttrain.provenance.code.normalize import parameters
from posttrain.provenance.code.scan import Handler, Scanner


def renamed_loader(name: str, target: str) -> bool:
    """Tell whether an import gives another name to what loads modules by name.

    Args:
        name: That the import binds.
        target: ``module:name`` that it imports.

    Returns:
        True of ``from importlib import import_module as load``.

    """
    loader = target.partition(":")[2]
    return loader in LOADERS and loader != name


def _see_import(scanner: Scanner, node: Import) -> None:
    for name, target, loaded in import_bindings(
        node, module=scanner.module, is_package=scanner.is_package
    ):
        scanner.tokens.append(f"import {name} {target} {loaded}")
        if renamed_loader(name, target):
            scanner.found.opaque.append(f"{target.partition(':')[2]} is called {name}")
            scanner.found.imports_by_name = True
        scanner.scope.bound.add(name)
        scanner.scope.targets.setdefault(name, []).append(target)
        scanner.found.imports.append(loaded)


def _see_global(scanner: Scanner, node: ast.Global) -> None:
    scanner.tokens.append(f"global {sorted(node.names)}")
    scanner.scope.global_names.update(node.names)


def _see_nonlocal(scanner: Scanner, node: ast.Nonlocal) -> None:
    scanner.tokens.append(f"nonlocal {sorted(node.names)}")
    scanner.scope.nonlocal_names.update(node.names)


def _see_function(scanner: Scanner, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    scanner.tokens.append(f"{type(node).__name__} ${node.name}")
    scanner.scope.bound.add(node.name)
    scanner.field("decorators", node.decorator_list)
    scanner.field("returns", node.returns)
    scanner.plain(node.args)  # defaults belong to the enclosing scope
    scanner.enter("function")
    scanner.scope.bind(arg.arg for arg in parameters(node.args))
    scanner.field("body", node.body)
    scanner.leave()


def _see_lambda(scanner: Scanner, node: ast.Lambda) -> None:
    scanner.tokens.append("Lambda")
    scanner.plain(node.args)  # defaults belong to the enclosing scope
    scanner.enter("function")
    scanner.scope.bind(arg.arg for arg in parameters(node.args))
    scanner.visit(node.body)
    scanner.leave()


def _see_argument(scanner: Scanner, node: ast.arg) -> None:
    scanner.tokens.append(f"arg ${node.arg}")
    scanner.field("annotation", node.annotation)


def _see_class(scanner: Scanner, node: ast.ClassDef) -> None:
    scanner.tokens.append(f"ClassDef ${node.name}")
    scanner.scope.bound.add(node.name)
    scanner.field("decorators", node.decorator_list)
    scanner.field("bases", node.bases)
    scanner.field("keywords", node.keywords)
    scanner.enter("class")
    scanner.field("body", node.body)
    scanner.leave()


def _see_field_of_class(scanner: Scanner, node: ast.AnnAssign) -> None:
    """An annotated field: pydantic and dataclasses read its annotation, also one in quotes."""
    scanner.tokens.append("AnnAssign")
    scanner.visit(node.target)
    scanner.field("annotation", evaluated(node.annotation))
    scanner.field("value", node.value)


def _see_comprehension(scanner: Scanner, node: Any) -> None:
    first, *others = node.generators
    scanner.tokens.append(type(node).__name__)
    scanner.field("is_async", first.is_async)
    scanner.visit(first.iter)  # evaluated in the enclosing scope
    scanner.enter("comprehension")
    scanner.visit(first.target)
    scanner.field("ifs", first.ifs)
    scanner.field("generators", others)
    for name in ("key", "value", "elt"):
        scanner.field(name, vars(node).get(name))
    scanner.leave()


def _see_walrus(scanner: Scanner, node: ast.NamedExpr) -> None:
    scanner.tokens.append(f"NamedExpr ${node.target.id}")
    scanner.scope.bind_walrus(node.target.id)
    scanner.visit(node.value)


def _see_binding_field(scanner: Scanner, node: ast.AST) -> None:
    """Nodes that bind a name which they hold as plain text."""
    scanner.plain(node)
    for name in ("name", "rest"):
        value = vars(node).get(name)
        if isinstance(value, str):
            scanner.scope.bound.add(value)


HANDLERS: Mapping[type, Handler] = {
    ast.Import: _see_import,
    ast.ImportFrom: _see_import,
    ast.Global: _see_global,
    ast.Nonlocal: _see_nonlocal,
    ast.FunctionDef: _see_function,
    ast.AsyncFunctionDef: _see_function,
    ast.Lambda: _see_lambda,
    ast.arg: _see_argument,
    ast.ClassDef: _see_class,
    ast.AnnAssign: _see_field_of_class,
    ast.ListComp: _see_comprehension,
    ast.SetComp: _see_comprehension,
    ast.DictComp: _see_comprehension,
    ast.GeneratorExp: _see_comprehension,
    ast.NamedExpr: _see_walrus,
    ast.ExceptHandler: _see_binding_field,
    ast.MatchAs: _see_binding_field,
    ast.MatchStar: _see_binding_field,
    ast.MatchMapping: _see_binding_field,
}
