"""Set up the process of a stage that may do without torch: what is for it waits for its import.

Importing torch takes two seconds, longer than all of a small stage. What a stage that imports it
after all comes to is the same to the bit: each generator begins as its seed says, once.

It is in no key: the key holds `call.set_up`, and tests hold this module to what that one comes to.
What would make other bytes belongs there.
"""

import importlib.util
import os
import random
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from posttrain.pipeline.determinism import keep_freed_memory, library_environment
from posttrain.pipeline.execution.assignment import Assignment
from posttrain.pipeline.execution.call import perform, set_up

__all__ = ["perform", "set_up_as_needed"]


def set_up_as_needed(assignment: Assignment) -> None:
    """Do what `call.set_up` does, and what of it is for numpy and torch once they are imported.

    Args:
        assignment: What the stage is given.

    """
    if "torch" in sys.modules or assignment.processes > 1:
        set_up(assignment)
        return
    keep_freed_memory()
    os.environ.update(library_environment(assignment.threads, assignment.kernels))
    random.seed(assignment.seed)

    def seed_numpy() -> None:
        import numpy as np

        np.random.seed(assignment.seed)

    if "numpy" in sys.modules:
        seed_numpy()
    sys.meta_path.insert(0, _Once("torch", lambda: _keeping_states(lambda: set_up(assignment))))
    sys.meta_path.insert(0, _Once("numpy", seed_numpy))


def _keeping_states(work: Callable[[], None]) -> None:
    """Do something that seeds Python's and numpy's generators, which may have been drawn from."""
    import numpy as np

    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global one
    work()
    random.setstate(of_python)
    np.random.set_state(of_numpy)


class _Once(MetaPathFinder, Loader):
    """Does something right after a module is imported for the first time."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then
        self._loader: Loader | None = None
        self._asking = False

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - as the interface says
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Find the module where the others find it, and come in between.

        That it is looked for is no import yet: polars asks whether torch is there.
        """
        if fullname != self._name or self._asking:
            return None
        self._asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave it to its own loader."""
        assert self._loader is not None
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Let its own loader import it, as if nobody had come in between; then do the rest."""
        assert self._loader is not None
        assert module.__spec__ is not None
        sys.meta_path.remove(self)
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then()
