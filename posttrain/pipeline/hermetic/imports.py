"""Packages that the project's code imports by names that are made up when it runs.

What is imported by its name is in the key, in functions too. A name that is put together is not
seen there, and the interpreter's packages are open to every stage.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from functools import cached_property, wraps
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, resolve_name
from types import FrameType, ModuleType

import posttrain
from posttrain.pipeline.hermetic.guard import Guard, asked_by, head_of
from posttrain.pipeline.hermetic.system import lies_in
from posttrain.stage.errors import UserError

_FRAMEWORK = os.path.dirname(os.path.realpath(posttrain.__file__)) + os.sep  # noqa: PTH120
_LOADERS = frozenset({"importlib", "runpy"})


class KeyedImports:
    """Refuses the project's code a package of which its key has no version.

    Heard are `importlib.import_module`, `__import__` of what is not loaded yet, and `runpy`, where
    the project's code calls them itself. What a library imports for itself is no matter: of 60
    packages that a process with a model holds, some 30 were taken along because they are there.

    Args:
        guard: Of the stage; told what was refused, as code may go on without.

    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._code = frozenset(file for file in guard.code if not file.startswith(_FRAMEWORK))

    def install(self) -> None:
        """Begin to hear imports of what is loaded already, and of what is not."""
        original = importlib.import_module

        @wraps(original)  # so that it is pickled as what it stands for
        def import_module(name: str, package: str | None = None) -> ModuleType:
            frame = sys._getframe(1)
            if asked_by(self._code, frame, through=_LOADERS):
                try:
                    meant = resolve_name(name, package)
                except (ImportError, ValueError, TypeError, AttributeError):
                    return original(name, package)  # which says what is wrong with it
                self._refuse_unkeyed(meant)
            return original(name, package)

        importlib.import_module = import_module
        # Not a subclass of `MetaPathFinder`, whose import costs more than all of this.
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Hear what is imported for the first time; whoever comes next finds it."""
        del target
        if path is None and self._made_up(sys._getframe(1)):
            self._refuse_unkeyed(name)
        return None

    def _made_up(self, frame: FrameType | None) -> bool:
        """Whether the project's code loads a module through one of the functions that are heard.

        A statement is not, nor what a library of C, which has no frame, imports for itself.
        """
        loads = runs = False
        while frame is not None and head_of(frame) in _LOADERS:
            loads = loads or frame.f_code.co_name == "_find_and_load"
            runs = runs or head_of(frame) == "runpy"
            frame = frame.f_back
        if frame is None or not asked_by(self._code, frame):
            return False
        return runs or (loads and "__import__" in frame.f_code.co_names)

    def _refuse_unkeyed(self, name: str) -> None:
        head = name.partition(".")[0]
        if head in sys.stdlib_module_names or not (missing := self._missing(head)):
            return
        said = (
            f"stage '{self._guard.view.stage}' imports {head} by a name that is made up when it"
            f" runs, so that its key does not know the version of {', '.join(sorted(missing))};"
            f" write `import {head}` where it is used"
        )
        self._guard.refused.append(said)
        raise UserError(said)

    def _missing(self, head: str) -> frozenset[str]:
        """Distributions that provide a module, where none of them is in the key."""
        # Here alone, as hardly any stage comes here, and the start of each would wait for them.
        from packaging.utils import canonicalize_name

        from posttrain.provenance.code.distributions import distributions

        try:
            spec = find_spec(head)
        except (ImportError, ValueError):
            return frozenset()
        if spec is None or self._is_ours(spec):
            return frozenset()
        found = distributions([head])
        return frozenset() if self._known.intersection(map(canonicalize_name, found)) else found

    @cached_property
    def _known(self) -> frozenset[str]:
        """Distributions that may be imported, by their canonical names."""
        from packaging.utils import canonicalize_name

        from posttrain.provenance.code.requirements import COMPUTES_NOTHING

        return COMPUTES_NOTHING.union(map(canonicalize_name, self._guard.view.packages))

    def _is_ours(self, spec: ModuleSpec) -> bool:
        """Whether a module is the project's, wherever its environment lies."""
        root = os.path.realpath(self._guard.view.root)
        places = [*(spec.submodule_search_locations or ()), spec.origin or ""]
        return any(
            lies_in(place, [root]) and "site-packages" not in place
            for place in map(os.path.realpath, filter(None, places))
        )
