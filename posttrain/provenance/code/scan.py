"""One walk over one statement: a digest of what it says, and the names that it uses."""

import ast
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from posttrain.provenance.code.scopes import Scope, ScopeChain
from posttrain.stage.hashing import sha256_of

_SILENT_FIELDS = frozenset({"ctx", "kind", "type_comment"})

Handler = Callable[["Scanner", Any], None]
"""What is done with a node of one type, in place of looking at its fields."""


@dataclass(slots=True)
class Scanned:
    """What one statement says and uses. `dynamic` pairs a chain with how it is looked into.

    `asked` counts how often the environment is mentioned, `environment` holds the names for which
    it is asked so.
    """

    digest: str = ""
    bound: set[str] = field(default_factory=set)
    targets: dict[str, list[str]] = field(default_factory=dict)
    uses: list[ScopeChain] = field(default_factory=list)
    dynamic: list[tuple[ScopeChain, str]] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    imports_by_name: bool = False
    names_its_place: bool = False
    reads_text: list[str] = field(default_factory=list)
    climbs: int = 0
    paths: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)
    asked: int = 0


class Scanner:
    """Scans the statements of one module.

    Args:
        module: Its absolute name.
        is_package: Whether it is an `__init__.py`.
        packages: Names of the first-party packages.
        handlers: By the type of a node.
        texts: Names of the module that stand for literal text.

    """

    def __init__(
        self,
        module: str,
        *,
        is_package: bool,
        packages: Collection[str],
        handlers: Mapping[type, Handler],
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self.module = module
        self.is_package = is_package
        self._handlers = handlers
        self.texts = texts or {}
        self.understood: set[ast.AST] = set()
        """Options of interpreters whose text has been looked at."""
        heads = "|".join(map(re.escape, packages)) or r"\Z\A"
        self.mention = re.compile(rf"\A(?:{heads})\.?\Z|(?<![\w.])(?:{heads})(?:\.\w+)+")

    def scan(self, node: ast.AST) -> Scanned:
        """Digest and uses of `node`, seen as a statement or expression of the module itself."""
        self.tokens: list[str] = []
        self.found = Scanned()
        self.top = self.scope = Scope()
        self.visit(node)
        part, top = self.found, self.top
        part.digest = sha256_of("\n".join(self.tokens))
        part.bound, part.targets = top.bound, top.targets
        part.uses = list(dict.fromkeys(chain for chain, reason in top.uses if not reason))
        part.dynamic = [(chain, reason) for chain, reason in top.uses if reason]
        return part

    def visit(self, node: Any) -> None:
        """Look at a node, by its type."""
        special = self._handlers.get(type(node))
        if special is not None:
            special(self, node)
        else:
            self.plain(node)

    def plain(self, node: ast.AST) -> None:
        """Look at every field of a node, in their order."""
        kind = type(node)
        self.tokens.append(kind.__name__)
        values = vars(node)
        for name in kind._fields:
            if name not in _SILENT_FIELDS:
                self.field(name, values.get(name))
        # Without an end, `f(1).g()` and `f().g(1)` would read alike.
        self.tokens.append(")")

    def field(self, name: str, value: Any) -> None:
        """Look at one field: a node, a list of nodes, or a plain value.

        Args:
            name: Of the field in the syntax tree.
            value: A node, a list of nodes, or a plain value; what is empty leaves no token.

        """
        # Empty fields are skipped, so that a Python with one more optional field agrees.
        if type(value) is list:
            if value:
                self.tokens.append(f"{name}[")
                for item in value:
                    self.visit(item)
                self.tokens.append("]")
        elif value is not None:
            self.tokens.append(name)
            self.visit(value)

    def opaque(self, what: str, node: ast.expr) -> None:
        """Note that `what` hides which code is meant.

        Args:
            what: What stands there, such as ``eval``.
            node: Where; its line goes into the note.

        """
        self.found.opaque.append(f"{what} at line {node.lineno}")

    def enter(self, kind: Literal["class", "function", "comprehension"]) -> None:
        """Go into a scope; what is used and bound from now on is its own."""
        self.scope = Scope(self.scope, kind)

    def leave(self) -> None:
        """Go back to the scope around it."""
        scope = self.scope
        self.found.opaque += scope.leave()
        assert scope.parent is not None
        self.scope = scope.parent
