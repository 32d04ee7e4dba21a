"""The part of the key that sees the code: which first-party source can change a stage's result.

Static: files are parsed and never imported. A function's use of a name leads to what the name
stands for, through imports, re-exports, attributes and aliases, at the level of functions, classes
and module constants.
"""

from posttrain.provenance.code.archive import ModuleText, SourceArchive, recovered
from posttrain.provenance.code.changes import SymbolChange, explain, source_in, symbol_source
from posttrain.provenance.code.closure import (
    FIRST_PARTY,
    INTERFACE,
    CodeClosure,
    CodeReader,
    code_closure,
)
from posttrain.provenance.code.distributions import version

__all__ = [
    "FIRST_PARTY",
    "INTERFACE",
    "CodeClosure",
    "CodeReader",
    "ModuleText",
    "SourceArchive",
    "SymbolChange",
    "code_closure",
    "explain",
    "recovered",
    "source_in",
    "symbol_source",
    "version",
]
