"""What one stage may see and change, by its key: made by the executor, held by the process."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import cache_from_source
from pathlib import Path

from posttrain.pipeline.hermetic import system
from posttrain.pipeline.hermetic.landlock import READ, READ_DIR, writing
from posttrain.stage.needs import UNCONNECTED


@dataclass(frozen=True)
class StageView:
    """What a stage may reach beside the machine and its packages.

    Attributes:
        stage: Its name.
        root: The project's folder: of it nothing is seen but what stands here.
        folder: The recipe's folder, from which `reads` are spelled.
        inputs: Files and folders that count in the key by their content.
        code: Files of the code that counts in the key.
        packages: Distributions, and modules without one, whose versions count in the key.
        writes: Folders of outputs and scratch.
        temporary: Folder for temporary files, in one of these; made by the process.
        logs: Files that its processes append to.
        reach: What its parameters declare: names of `posttrain.stage.needs`.
        environment: Variables that the recipe declares, with their values.
        held: False where the kernel cannot hold the process: then it is observed.

    """

    stage: str
    root: Path
    folder: Path
    inputs: tuple[Path, ...] = ()
    code: tuple[Path, ...] = ()
    packages: frozenset[str] = frozenset()
    writes: tuple[Path, ...] = ()
    temporary: Path | None = None
    logs: tuple[Path, ...] = ()
    reach: frozenset[str] = frozenset()
    environment: Mapping[str, str] = field(default_factory=dict)
    held: bool = True

    @property
    def connects(self) -> bool:
        """True where a stage may use TCP: it declares something to reach, or has several ranks."""
        return bool(self.reach - UNCONNECTED)


@dataclass(frozen=True)
class Grants:
    """Places that a process may reach, all links followed.

    Attributes:
        read: Files, and folders with all below them.
        write: The same, of what may be changed as well.
        listed: Folders whose names may be seen, with those of all folders below them.

    """

    read: tuple[str, ...]
    write: tuple[str, ...]
    listed: tuple[str, ...]

    @classmethod
    def of(cls, view: StageView, caches: Iterable[Path] = ()) -> "Grants":
        """Collect all that a stage may reach on this machine.

        Args:
            view: What is the stage's own.
            caches: Folders that it may read and change as well.

        """
        root = os.path.realpath(view.root)
        path = [os.path.realpath(entry or ".") for entry in sys.path]
        around = [entry for entry in path if not system.lies_in(entry, [root, *system.machine()])]
        beside = [each for entry in around for each in system.importable(entry)]
        sources = [str(file) for file in view.code]
        compiled = [cache_from_source(file) for file in sources]
        own = [file for given in view.inputs for file in _with_targets(given)]
        read = [
            each for place in (*system.machine(), *beside) for each in system.sparing(place, root)
        ]
        write: list[str | Path] = [*view.writes, *view.logs, *system.device_files(), *caches]
        return cls(
            _unique([*read, *_real((*own, *sources, *compiled))]),
            _unique(_real(write)),
            _unique([root, *around]),
        )

    @cached_property
    def rules(self) -> list[tuple[str, int]]:
        """The same as Landlock takes it."""
        return [
            *((place, READ) for place in self.read),
            *((place, READ | writing()) for place in self.write),
            *((place, READ_DIR) for place in self.listed),
        ]

    def reads(self, path: str) -> bool:
        """True of a file that may be read, or a folder whose files may."""
        real = os.path.realpath(path)
        return system.lies_in(real, self.read) or system.lies_in(real, self.write)

    def writes(self, path: str) -> bool:
        """True of a place where something may be made or changed."""
        return system.lies_in(os.path.realpath(path), self.write)


def _real(places: Iterable[str | Path]) -> list[str]:
    return [os.path.realpath(place) for place in places]


def _unique(places: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(places))


def _with_targets(path: Path) -> Iterator[Path]:
    """A file or folder, and what links inside of it lead to: DVC may link into its cache."""
    yield path
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            inner = os.path.join(folder, name)  # noqa: PTH118 - many, and all are text
            if os.path.islink(inner):  # noqa: PTH114
                yield Path(inner)
