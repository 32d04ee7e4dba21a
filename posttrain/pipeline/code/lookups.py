"""Expressions that say in text what code they mean."""

import ast

# They load modules by a name that they are given.
LOADERS = frozenset(
    {
        "import_module", "run_path", "run_module", "spec_from_file_location", "exec_module",
        "walk_packages", "iter_modules", "entry_points",
    }
)  # fmt: skip


def called(function: ast.expr) -> str:
    """Name by which a call could matter: builtins count only bare, loaders also as attributes."""
    if isinstance(function, ast.Name):
        return function.id
    if isinstance(function, ast.Attribute) and function.attr in LOADERS:
        return function.attr
    return ""


def string(arguments: list[ast.expr]) -> str | None:
    """The first of `arguments`, where it is a literal string."""
    if arguments and isinstance(arguments[0], ast.Constant):
        value = arguments[0].value
        return value if isinstance(value, str) else None
    return None


def evaluated(annotation: ast.expr) -> ast.expr:
    """An annotation, out of its quotes where it has some."""
    literal = string([annotation])
    if literal is None:
        return annotation
    try:
        return ast.parse(literal, mode="eval").body
    except SyntaxError:
        return annotation
