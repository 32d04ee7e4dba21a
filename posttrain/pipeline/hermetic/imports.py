"""Packages that the project's code imports by names that are made up when it runs.

What is imported by its name is in the key, in functions too. A name that is put together is not
seen there, and the interpreter's packages are open to every stage.
"""

import dis
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType

import posttrain
from posttrain.pipeline.hermetic.guard import Guard, asked_by
from posttrain.stage.errors import UserError

_STANDARD = sys.stdlib_module_names
_FRAMEWORK = os.path.dirname(os.path.realpath(posttrain.__file__)) + os.sep  # noqa: PTH120
_STATEMENT = dis.opmap["IMPORT_NAME"]


class KeyedImports:
    """Refuses the project's code a package of which its key has no version.

    What a library imports for itself is no matter: of 60 packages that a process with a model
    holds, some 30 were taken along because they are installed.

    Args:
        guard: Of the stage; told what was refused, as code may go on without.

    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._code = frozenset(file for file in guard.code if not file.startswith(_FRAMEWORK))

    def install(self) -> None:
        """Begin to hear imports of what is loaded already, and of what is not."""
        original = importlib.import_module

        def import_module(name: str, package: str | None = None) -> ModuleType:
            if not name.startswith("."):
                self._hear(name, sys._getframe(1))
            return original(name, package)

        importlib.import_module = import_module
        # Not a subclass of `MetaPathFinder`, whose import costs more than all of this.
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Hear what is imported for the first time; whoever comes next finds it."""
        del target
        frame = sys._getframe(1)
        if path is None and _loads(frame):
            self._hear(name, frame)
        return None

    def _hear(self, name: str, frame: FrameType) -> None:
        head = name.partition(".")[0]
        if head in _STANDARD or not asked_by(self._code, frame, through=_STANDARD):
            return
        if _is_statement(frame) or not (missing := self._missing(head)):
            return
        view = self._guard.view
        said = (
            f"stage '{view.stage}' imports {head} by a name that is made up when it runs, so that"
            f" its key does not know the version of {', '.join(sorted(missing))}; write `import"
            f" {head}` where it is used"
        )
        self._guard.refused.append(said)
        raise UserError(said)

    def _missing(self, head: str) -> set[str]:
        """Distributions that provide a module and are not in the key; none of the project's own."""
        from packaging.utils import canonicalize_name

        from posttrain.provenance.code.distributions import distributions
        from posttrain.provenance.code.requirements import COMPUTES_NOTHING

        spec = PathFinder.find_spec(head)
        if spec is None or self._is_ours(spec):
            return set()
        known = COMPUTES_NOTHING.union(map(canonicalize_name, self._guard.view.packages))
        return {each for each in distributions([head]) if canonicalize_name(each) not in known}

    def _is_ours(self, spec: ModuleSpec) -> bool:
        """Whether a module is the project's, wherever its environment lies."""
        root = os.path.realpath(self._guard.view.root) + os.sep
        places = [*(spec.submodule_search_locations or ()), spec.origin or ""]
        return any(
            place.startswith(root) and "site-packages" not in place
            for place in map(os.path.realpath, filter(None, places))
        )


def _loads(frame: FrameType | None) -> bool:
    """Whether a search for a module is made to load it: others ask whether it is there."""
    while frame is not None and "importlib" in frame.f_code.co_filename:
        if frame.f_code.co_name == "_find_and_load":
            return True
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == "runpy"


def _is_statement(frame: FrameType | None) -> bool:
    """Whether an import is a statement, which static analysis sees."""
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_code[frame.f_lasti] == _STATEMENT
