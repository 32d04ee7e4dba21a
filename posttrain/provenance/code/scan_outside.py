"""What a statement reads from outside: files by their names, variables of the environment."""

import ast
import re
from collections.abc import Iterable, Mapping

from posttrain.provenance.code.lookups import chain, string
from posttrain.provenance.code.scan import Handler, Scanner

COMPUTED = "*"
"""Stands for the name of a variable that is known only when the code runs."""

# They say where an object, a module or a package lies.
PLACES = frozenset({"getfile", "getsourcefile", "getabsfile", "__spec__"})

_ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb", "expandvars"})
_ASKING = frozenset({"get", "pop", "setdefault", "__getitem__", "__contains__"})
# Their first argument is a path, also where it is a single word.
_OPENING = frozenset({"open", "Path", "PurePath", "listdir", "scandir", "walk", "joinpath"})
# A name with a suffix or folders, relative: what could be the path of a file.
_PATH = re.compile(r"\A(?:\./|\.\./)*[\w@+-][\w@+. -]*(?:/[\w@+. -]+)*/?\Z")
_LONGEST = 200


def see_text(scanner: Scanner, text: str) -> None:
    """Note text that could name a file: with a suffix, or with folders.

    Args:
        scanner: Of the statement.
        text: A literal, or several that are joined to a path.

    """
    if len(text) > _LONGEST:
        return
    fixed, wild, _ = text.partition("*")
    if wild:
        fixed = fixed[: fixed.rfind("/") + 1]
    if ("/" in fixed or "." in fixed[1:-1]) and _PATH.match(fixed):
        scanner.found.paths.append(fixed)


def see_mention(scanner: Scanner, name: str) -> None:
    """Note a name that reads the environment or says where code lies.

    Args:
        scanner: Of the statement.
        name: As it is written, with nothing before it.

    """
    if name in _ENVIRONMENT:
        scanner.found.asked += 1
    elif name in PLACES:
        scanner.found.places.append(name)


def see_call(scanner: Scanner, node: ast.Call) -> None:
    """Look at a call's arguments: `environ.get("X")`, `Path("a", "b")`, `path.joinpath("a", "b")`.

    Args:
        scanner: Of the statement.
        node: The call.

    """
    above, _, last = chain(node.func).rpartition(".")
    if last == "update" and above.rpartition(".")[2] in _ENVIRONMENT:
        scanner.found.asked -= 1  # it sets variables
    asks = last in ("getenv", "getenvb") or (
        last in _ASKING and above.rpartition(".")[2] in _ENVIRONMENT
    )
    if asks and (name := string(node.args)) is not None:
        scanner.found.environment.append(name)
        return
    if last in _OPENING and (name := string(node.args)) is not None and _PATH.match(name):
        scanner.found.paths.append(name)
    _see_joined(scanner, node.args)


def see_subscript(scanner: Scanner, node: ast.Subscript) -> None:
    """Look at `os.environ["X"]` and `package.__path__[0]`; to set a variable is to read none.

    Args:
        scanner: Of the statement.
        node: The subscript.

    """
    last = chain(node.value).rpartition(".")[2]
    if last == "__path__":
        scanner.found.places.append(last)
    if last not in _ENVIRONMENT:
        return
    if not isinstance(node.ctx, ast.Load):
        scanner.found.asked -= 1
    elif (name := string([node.slice])) is not None:
        scanner.found.environment.append(name)


def _see_division(scanner: Scanner, node: ast.BinOp) -> None:
    """`folder / "a" / "b.json"` names `a/b.json` below a folder."""
    if isinstance(node.op, ast.Div):
        parts: list[ast.expr] = [node.right]
        left = node.left
        while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Div):
            parts.append(left.right)
            left = left.left
        _see_joined(scanner, [left, *reversed(parts)])
    scanner.plain(node)


def _see_membership(scanner: Scanner, node: ast.Compare) -> None:
    """`"X" in os.environ`."""
    of_environment = chain(node.comparators[0]).rpartition(".")[2] in _ENVIRONMENT
    asks = of_environment and isinstance(node.ops[0], ast.In | ast.NotIn)
    if asks and (name := string([node.left])) is not None:
        scanner.found.environment.append(name)
    scanner.plain(node)


def _see_joined(scanner: Scanner, arguments: Iterable[ast.expr]) -> None:
    """The literals at the end of what is joined; single ones are seen by themselves."""
    joined: list[str] = []
    for argument in arguments:
        literal = _literal(argument)
        joined = [*joined, literal] if literal is not None else []
    if len(joined) > 1:
        see_text(scanner, "/".join(part.strip("/") for part in joined))


def _literal(node: ast.expr) -> str | None:
    if isinstance(node, ast.Call) and len(node.args) == 1 and chain(node.func).endswith("Path"):
        return string(node.args)
    return string([node])


HANDLERS: Mapping[type, Handler] = {
    ast.BinOp: _see_division,
    ast.Compare: _see_membership,
}
