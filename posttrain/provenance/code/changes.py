"""What differs between two closures, symbol by symbol, and the source to show it with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from posttrain.provenance.code.closure import FIRST_PARTY, CodeClosure
from posttrain.provenance.code.symbols import Definitions, parse_module, unparsed
from posttrain.provenance.code.tree import SourceTree
from posttrain.stage.errors import UserError, nearest


@dataclass(frozen=True)
class SymbolChange:
    """One symbol that differs between two closures, by `module:name`."""

    symbol: str
    kind: Literal["changed", "added", "removed"]


def explain(
    before: CodeClosure | Mapping[str, str], after: CodeClosure | Mapping[str, str]
) -> list[SymbolChange]:
    """Symbols that differ: the changed ones first, then those newly and no longer reached."""
    old, new = _symbols(before), _symbols(after)
    changed = [name for name in old.keys() & new.keys() if old[name] != new[name]]
    return [
        *(SymbolChange(name, "changed") for name in sorted(changed)),
        *(SymbolChange(name, "added") for name in sorted(new.keys() - old.keys())),
        *(SymbolChange(name, "removed") for name in sorted(old.keys() - new.keys())),
    ]


def symbol_source(symbol: str, *, root: Path, packages: Sequence[str] = FIRST_PARTY) -> str:
    """Normalised source of `module:name` as it is on disk now: what the digest is made of."""
    module, _, name = symbol.partition(":")
    definitions = SourceTree(root, packages, cache=None).definitions(module)
    if definitions is None:
        raise UserError(f"'{symbol}': there is no module {module}")
    return _source(symbol, name, definitions)


def source_in(text: str, symbol: str, *, is_package: bool = False) -> str:
    """Normalised source of `module:name` in a given text of its module, say of another commit."""
    module, _, name = symbol.partition(":")
    definitions = parse_module(text.encode(), module, is_package=is_package, packages=())
    return _source(symbol, name, definitions)


def _source(symbol: str, name: str, definitions: Definitions) -> str:
    nodes = definitions.nodes.get(name)
    if nodes is None:
        raise UserError(f"'{symbol}' is not defined there{nearest(name, definitions.nodes)}")
    return unparsed(nodes)


def _symbols(closure: CodeClosure | Mapping[str, str]) -> Mapping[str, str]:
    return closure.symbols if isinstance(closure, CodeClosure) else closure
