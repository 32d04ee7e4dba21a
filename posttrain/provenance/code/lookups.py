"""Expressions that say in text what code they mean."""

import ast
import itertools

# They load modules by a name that they are given.
LOADERS = frozenset(
    {
        "import_module", "run_path", "run_module", "spec_from_file_location", "exec_module",
        "walk_packages", "iter_modules", "entry_points", "resolve_name", "import_string",
        "ImportString",
    }
)  # fmt: skip
# Options of an interpreter that is started: the text behind them names code.
INTERPRETED = frozenset({"-m", "-c"})
# They read annotations where a signature is read as well.
OF_SIGNATURES = frozenset({"signature", "annotation", "return_annotation"})
# They read how a function is written: its docstring, its annotations, its text.
READERS = frozenset(
    {
        "__doc__", "__annotations__", "annotation", "return_annotation", "get_annotations",
        "get_type_hints", "getdoc", "getsource", "getsourcelines", "get_json_schema", "signature",
    }
)  # fmt: skip
# Names by which a module can make up those of its neighbors.
OWN_PLACE = frozenset({"__name__", "__package__", "__path__", "__file__", "__spec__"})
_TYPES = frozenset({"list", "dict", "tuple", "set", "frozenset", "type"})


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


def joined(node: ast.Call) -> str | None:
    """Read `".".join(["a", "b"])`, up to the first part that is no literal; else None."""
    if not (isinstance(node.func, ast.Attribute) and node.func.attr == "join" and node.args):
        return None
    separator, parts = string([node.func.value]), node.args[0]
    if separator is None or not isinstance(parts, ast.List | ast.Tuple):
        return None
    texts = list(
        itertools.takewhile(lambda text: text is not None, (string([e]) for e in parts.elts))
    )
    whole = separator.join(text for text in texts if text is not None)
    return whole if len(texts) == len(parts.elts) else whole + separator


def chain(node: ast.expr) -> str:
    """The names that an expression starts with, looking through calls and subscripts."""
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


class _Unquoted(ast.NodeTransformer):
    """Takes the types in an annotation out of their quotes; what is in a `Literal` stays text."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if not chain(node).endswith("Literal"):
            node.slice = self.visit(node.slice)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        literal = string([node])
        try:
            return node if literal is None else ast.parse(literal, mode="eval").body
        except (SyntaxError, ValueError):
            return node


def evaluated(annotation: ast.expr) -> ast.expr:
    """An annotation whose types are out of their quotes."""
    unquoted: ast.expr = _Unquoted().visit(annotation)
    return unquoted


def is_type_alias(node: ast.Subscript) -> bool:
    """Whether a subscript looks like a type with its arguments, not like a lookup."""
    name = chain(node.value).rpartition(".")[2]
    return name in _TYPES or (name[:1].isupper() and not name.isupper() and name != "Literal")
