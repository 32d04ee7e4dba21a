"""Which names a scope leaves to the scopes around it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

# A name and the attributes read from it: `("torch", "nn", "relu")`. A root that ends in a colon is
# a module by its absolute name: `("posttrain.learning.maths:", "kl")`.
ScopeChain = tuple[str, ...]

# Builtins that reach code by a name which exists only at run time.
BY_NAME = frozenset({"eval", "exec", "globals", "vars", "__import__"})


@dataclass(slots=True)
class Scope:
    """One lexical scope. Uses are resolved when it ends: a name may be bound after its first use.

    Each use is a chain with the reason why it is opaque, or "" where it is not.
    """

    parent: "Scope | None" = None
    kind: Literal["module", "class", "function", "comprehension"] = "module"
    bound: set[str] = field(default_factory=set)
    targets: dict[str, list[str]] = field(default_factory=dict)
    uses: list[tuple[ScopeChain, str]] = field(default_factory=list)
    global_names: set[str] = field(default_factory=set)
    nonlocal_names: set[str] = field(default_factory=set)

    def use(self, chain: ScopeChain, reason: str = "") -> None:
        """Read `chain`.

        Args:
            chain: A name and the attributes read from it.
            reason: Why it is opaque; empty where it is not.

        """
        self.uses.append((chain, reason))

    def bind(self, names: Iterable[str]) -> None:
        """Bind parameters, assigned names, definitions."""
        self.bound.update(names)

    def bind_walrus(self, name: str) -> None:
        """Bind a name that escapes from the comprehensions around it."""
        scope = self
        while scope.kind == "comprehension" and scope.parent is not None:
            scope = scope.parent
        scope.bound.add(name)

    def leave(self) -> list[str]:
        """Hand to the enclosing scope what this one uses and does not bind.

        Returns:
            The reasons of opaque uses whose object is a local one, so known to nobody.

        """
        parent, top = self.parent, self.top()
        assert parent is not None
        top.uses += [((name,), "") for name in self.global_names & self.bound]
        # Functions in a class do not see its names, so its uses may all be of outer names.
        own = set() if self.kind == "class" else self.bound - self.nonlocal_names
        unknown: list[str] = []
        for use in self.uses:
            (root, *rest), reason = use
            if root in self.global_names:
                top.uses.append(use)
                continue
            for target in self.targets.get(root, ()):
                parent.use((*split_target(target), *rest), reason)
            if root not in own:
                parent.uses.append(use)
            elif reason and root not in BY_NAME and root not in self.targets:
                unknown.append(reason)
        return unknown

    def top(self) -> "Scope":
        """The module's scope."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope


def split_target(target: str) -> ScopeChain:
    """`a.b:c` as a chain: `("a.b:", "c")`."""
    module, _, attribute = target.partition(":")
    return (f"{module}:", attribute) if attribute else (f"{module}:",)
