"""What a definition does to other objects while its module is imported."""

import ast
from collections.abc import Collection

from posttrain.provenance.code.lookups import chain
from posttrain.provenance.code.normalize import parameters

# Methods that change the object that they belong to.
CHANGING = frozenset(
    {"add", "append", "appendleft", "extend", "insert", "setdefault", "update", "__setitem__"}
)
# Their value is nobody else's: adding to it in place is seen under its own name alone.
_FRESH = (
    ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp,
    ast.JoinedStr, ast.BinOp, ast.UnaryOp, ast.Compare,
)  # fmt: skip
_PLAIN = (ast.Constant, ast.Tuple, ast.UnaryOp, ast.BinOp, ast.JoinedStr, ast.unaryop, ast.operator)


class _Found(ast.NodeVisitor):
    """Calls of one statement, in functions those of decorators and defaults alone."""

    def __init__(self) -> None:
        self.calls: dict[str, None] = {}
        self.handed: list[tuple[str, str]] = []

    def visit_Call(self, node: ast.Call) -> None:
        function = chain(node.func)
        self.calls[function] = None
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        arguments = [chain(value) for value in given if isinstance(value, ast.Name | ast.Attribute)]
        self.handed += [(function, argument) for argument in arguments if argument]
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in CHANGING or not isinstance(node.ctx, ast.Load):
            self.calls[chain(node)] = None
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.calls[f"{chain(node)}.__setitem__"] = None
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._decorated(node.decorator_list)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._decorated(node.decorator_list)
        self.visit(node.args)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)

    def _decorated(self, decorators: list[ast.expr]) -> None:
        for decorator in decorators:
            self.calls[chain(decorator)] = None
            self.visit(decorator)


def calls_at_import(node: ast.AST) -> tuple[list[str], list[tuple[str, str]]]:
    """Find what a statement calls or changes when it is executed, and what it hands over.

    Args:
        node: A statement of a module or class.

    Returns:
        Dotted names that are called or changed, where a call of something without a name is the
        empty one; and pairs of a called name and a name that was handed to it.

    """
    found = _Found()
    found.visit(node)
    return list(found.calls), found.handed


def changes_its_arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function changes an object that it is given."""
    found = _Found()
    for statement in node.body:
        found.visit(statement)
    given = {arg.arg for arg in parameters(node.args)}
    changed = {call for call in found.calls if call.rpartition(".")[2] in CHANGING}
    targets = (each for each in ast.walk(node) if isinstance(each, ast.Attribute | ast.Subscript))
    changed |= {chain(each) for each in targets if not isinstance(each.ctx, ast.Load)}
    return not given.isdisjoint(call.partition(".")[0] for call in changed)


def changes_others(node: ast.AST, free: Collection[str]) -> bool:
    """Tell whether a function or class changes an object that outlives its call.

    Args:
        node: The definition.
        free: Names that it uses and does not bind, of the module therefore.

    Returns:
        True where it changes an object behind a free name; or an attribute of a class, which is
        one that its methods change and do not set.

    """
    if any(isinstance(each, ast.Global) for each in ast.walk(node)):
        return True
    inside = [each for each in ast.walk(node) if isinstance(each, ast.Attribute | ast.Subscript)]
    stored = [each for each in inside if not isinstance(each.ctx, ast.Load)]
    changing = [e for e in inside if isinstance(e, ast.Attribute) and e.attr in CHANGING]
    changed = [chain(each).split(".") for each in (*stored, *changing)]
    own = {
        e.attr for e in stored if isinstance(e, ast.Attribute) and ast.unparse(e.value) == "self"
    }
    for root, *names in changed:
        if root in free or root == "cls":
            return True
        if root == "self" and names and names[0] not in own:
            return True
    return False


def is_fresh(node: ast.AST) -> bool:
    """Whether a statement binds its names to objects that nothing else has."""
    return isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, _FRESH)


def is_plain(node: ast.AST) -> bool:
    """Whether a statement binds a name to a value that cannot change: numbers, text, tuples."""
    if not isinstance(node, ast.Assign) or not all(isinstance(t, ast.Name) for t in node.targets):
        return False
    return all(isinstance(each, _PLAIN) for each in ast.walk(node.value))
