"""Programs that are started with their text on the command line: `python -c TEXT`, `sh -c TEXT`."""

import ast
from collections.abc import Iterable, Mapping, Sequence

from posttrain.provenance.code.lookups import string
from posttrain.provenance.code.scan import Handler, Scanner

_TEXT_BEHIND = "-c"
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})


def literal_texts(statements: Iterable[ast.stmt]) -> dict[str, str]:
    """Find the names of a module that stand for literal text, and that nothing else in it binds.

    Args:
        statements: Of the module.

    Returns:
        Text by name.

    """
    found: dict[str, str] = {}
    bound: list[str] = []
    for node in statements:
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
                bound.append(each.id)
            elif isinstance(each, ast.arg):
                bound.append(each.arg)
            elif isinstance(each, ast.alias):
                bound.append(each.asname or each.name)
        if isinstance(node, ast.Assign) and (text := string([node.value])) is not None:
            found |= {each.id: text for each in node.targets if isinstance(each, ast.Name)}
    return {name: text for name, text in found.items() if bound.count(name) == 1}


def see_words(scanner: Scanner, words: Sequence[ast.expr]) -> None:
    """Look at what could be a command line; code that stands behind `-c` is looked at as code.

    What is no literal, and what neither Python nor a shell reads, is left: it hides which code is
    meant. So is what a shell starts Python by.

    Args:
        scanner: Of the statement.
        words: Of a list, or the arguments of a call.

    """
    for option, behind in zip(words, words[1:], strict=False):
        if string([option]) != _TEXT_BEHIND or (text := _text(scanner, behind)) is None:
            continue
        program = string([*words][:1]) or ""
        if program.rpartition("/")[2] in _SHELLS:
            understood = "python" not in text
        else:
            understood = _see_python(scanner, text)
        if understood:
            scanner.understood.add(option)


def _text(scanner: Scanner, node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return scanner.texts.get(node.id)
    return string([node])


def _see_python(scanner: Scanner, text: str) -> bool:
    """Look at a program as at a function; what it says is in the digest of the text already."""
    try:
        program = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    said, scanner.tokens = scanner.tokens, []
    scanner.enter("function")
    scanner.field("body", program.body)
    scanner.leave()
    scanner.tokens = said
    return True


def _see_list(scanner: Scanner, node: ast.List | ast.Tuple) -> None:
    see_words(scanner, node.elts)
    scanner.plain(node)


HANDLERS: Mapping[type, Handler] = {ast.List: _see_list, ast.Tuple: _see_list}
