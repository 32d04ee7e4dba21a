"""The part of the key that sees the code: which first-party source can change a stage's result.

Static: files are parsed and never imported. A function's use of a name leads to what the name
stands for, through imports, re-exports, attributes and aliases, at the level of functions, classes
and module constants.
"""

from posttrain.provenance.code.archive import ModuleText, SourceArchive, recovered
from posttrain.provenance.code.closure import CodeClosure, CodeReader
from posttrain.provenance.code.distributions import optional, version
from posttrain.provenance.code.files import FRAMEWORK
from posttrain.provenance.code.renaming import Renaming
from posttrain.provenance.code.requirements import COMPUTES_NOTHING, installed_versions
from posttrain.provenance.code.scan_outside import COMPUTED
from posttrain.provenance.code.seen import Signature, signature_of

__all__ = [
    "COMPUTED",
    "COMPUTES_NOTHING",
    "FRAMEWORK",
    "CodeClosure",
    "CodeReader",
    "ModuleText",
    "Renaming",
    "Signature",
    "SourceArchive",
    "installed_versions",
    "optional",
    "recovered",
    "signature_of",
    "version",
]
