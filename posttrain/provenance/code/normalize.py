"""Drop from a module's syntax what cannot change a result, before anything is compared."""

import ast

from posttrain.provenance.code.imports import Import

# Decorators that never look at annotations; any other one might (pydantic, typer, singledispatch).
_BLIND_DECORATORS = frozenset(
    {
        "property", "setter", "staticmethod", "classmethod", "abstractmethod", "overload",
        "override", "cache", "cached_property", "lru_cache", "wraps", "contextmanager",
        "asynccontextmanager", "no_grad", "inference_mode",
    }
)  # fmt: skip
_BLOCKS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.If: ("body", "orelse"),
    ast.For: ("body", "orelse"),
    ast.AsyncFor: ("body", "orelse"),
    ast.While: ("body", "orelse"),
    ast.With: ("body",),
    ast.AsyncWith: ("body",),
    ast.Try: ("body", "orelse", "finalbody"),
    ast.TryStar: ("body", "orelse", "finalbody"),
    ast.ExceptHandler: ("body",),
    ast.match_case: ("body",),
}


def normalize(tree: ast.Module) -> None:
    """Remove what changes nothing of what a module does, in place.

    That is docstrings, other bare literals, `pass`, annotations that nothing evaluates, and blocks
    that only a type checker or `python -m` enters. Annotations stay where they are data: on fields
    of classes, and on functions whose decorator might read them.

    Args:
        tree: The module.

    """
    tree.body = _block(tree.body, in_class=False)


def type_only_imports(tree: ast.Module) -> list[Import]:
    """Imports that only a type checker sees, at the top of a module that is not normalized yet."""
    blocks = [stmt for stmt in tree.body if isinstance(stmt, ast.If) and _is_type_checking(stmt)]
    statements = [stmt for block in blocks for stmt in block.body]
    return [stmt for stmt in statements if isinstance(stmt, ast.Import | ast.ImportFrom)]


def guarded_by_main(tree: ast.Module) -> list[ast.stmt]:
    """Statements that only `python -m` executes, of a module that is not normalized yet."""
    blocks = [stmt for stmt in tree.body if isinstance(stmt, ast.If) and _is_main_guard(stmt)]
    return [each for block in blocks for each in _block(block.body, in_class=False)]


def _block(statements: list[ast.stmt], *, in_class: bool) -> list[ast.stmt]:
    kept: list[ast.stmt] = []
    for statement in statements:
        kept += _statement(statement, in_class=in_class)
    return kept


def _statement(node: ast.stmt, *, in_class: bool) -> list[ast.stmt]:
    if isinstance(node, ast.Pass):
        return []
    if isinstance(node, ast.Expr):
        return [] if isinstance(node.value, ast.Constant) else [node]
    if isinstance(node, ast.AnnAssign) and not in_class:
        if node.value is None:
            return []
        return [ast.Assign([node.target], node.value, lineno=node.lineno)]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        _strip_signature(node)
        node.body = _block(node.body, in_class=False) or [ast.Pass()]
    elif isinstance(node, ast.ClassDef):
        node.body = _block(node.body, in_class=True) or [ast.Pass()]
    elif isinstance(node, ast.If) and (_is_type_checking(node) or _is_main_guard(node)):
        return _block(node.orelse, in_class=in_class)
    else:
        _strip_blocks(node, in_class=in_class)
    return [node]


def _strip_blocks(node: ast.AST, *, in_class: bool) -> None:
    for field in _BLOCKS.get(type(node), ()):
        block = _block(vars(node)[field], in_class=in_class)
        vars(node)[field] = block or ([ast.Pass()] if field == "body" else [])
    if isinstance(node, ast.Try | ast.TryStar):
        for handler in node.handlers:
            _strip_blocks(handler, in_class=in_class)
    elif isinstance(node, ast.Match):
        for case in node.cases:
            _strip_blocks(case, in_class=in_class)


def _strip_signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    if not all(_last_name(decorator) in _BLIND_DECORATORS for decorator in node.decorator_list):
        return
    node.returns = None
    for arg in parameters(node.args):
        arg.annotation = None


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """All parameters of a signature, whatever their kind."""
    variadic = [arg for arg in (arguments.vararg, arguments.kwarg) if arg is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *variadic]


def _last_name(decorator: ast.expr) -> str:
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    if isinstance(decorator, ast.Attribute):
        return decorator.attr
    return decorator.id if isinstance(decorator, ast.Name) else ""


def _is_type_checking(node: ast.If) -> bool:
    return _last_name(node.test) == "TYPE_CHECKING" and not isinstance(node.test, ast.Call)


def _is_main_guard(node: ast.If) -> bool:
    return ast.unparse(node.test) == "__name__ == '__main__'"
