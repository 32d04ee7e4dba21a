"""Which version of each file a process imported: files may change while a run is under way.

Whoever imports this module first knows it of all that comes later, and so do the children that are
forked from it.
"""

import os
import sys
import sysconfig
from importlib.machinery import SourceFileLoader

from posttrain.provenance.code.seen import Signature, signature_of

_OTHERS = (sysconfig.get_path("stdlib") + os.sep, sysconfig.get_path("platstdlib") + os.sep)
_INSTALLED = ("site-packages", "dist-packages")

_imported: dict[str, Signature] = {}


def first_party() -> dict[str, Signature]:
    """The files that were imported, without those of the interpreter and of installed packages."""
    return {
        path: signature
        for path, signature in _imported.items()
        if not path.startswith(_OTHERS) and not any(each in path for each in _INSTALLED)
    }


def _noted(_loader: SourceFileLoader, path: str) -> dict[str, float]:
    """What the loader compares with a compiled file; it asks right before it reads the source."""
    status = os.stat(path)  # noqa: PTH116 - as the one that it replaces
    _imported[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return {"mtime": status.st_mtime, "size": status.st_size}


def _watch() -> None:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and (signature := signature_of(file)) is not None:
            _imported.setdefault(file, signature)
    SourceFileLoader.path_stats = _noted  # type: ignore[assignment, method-assign]


_watch()
