"""Where the first-party modules lie."""

import sys
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path

from posttrain.stage.installed import SHARED, beside, home


class ModulePlaces:
    """Finds the files of first-party modules, each once.

    What `root` lacks is looked for where Python would import it from: a project of the user's own
    runs on the framework's code, and its stages and flows stand beside the installed ones. Modules
    below `root` count however they are found: at its top, in folders without an `__init__.py`, or
    in a folder that is on the path.

    Args:
        root: The project's folder.
        packages: Names of packages that count, wherever they lie.

    """

    def __init__(self, root: Path, packages: Collection[str]) -> None:
        self._root = root
        self._packages = tuple(packages)
        self._homes: dict[str, tuple[Path, ...]] = {}
        self._places: dict[str, Path | None] = {}

    def is_first_party(self, module: str) -> bool:
        """Whether the module belongs to one of the packages whose code counts."""
        return bool(self._homes_of(module.partition(".")[0]))

    def is_installed(self, package: str) -> bool:
        """True for a package of others, which lies neither in the project nor beside posttrain."""
        return self._homes_of(package)[:1] not in ((), (self._root,), (home(),))

    def place(self, module: str) -> Path | None:
        """The module's file; its directory where it is a package without `__init__.py`."""
        if module not in self._places:
            self._places[module] = self._find(module)
        return self._places[module]

    def is_at_top(self, module: str) -> bool:
        """Whether the module lies in no package."""
        return "." not in module and not self.is_package(module)

    def is_package(self, module: str) -> bool:
        """Whether modules lie in it."""
        place = self.place(module)
        return place is not None and (place.name == "__init__.py" or place.is_dir())

    def submodules(self, package: str) -> list[str]:
        """All modules below a package, by their absolute names."""
        place = self.place(package)
        if place is None or not self.is_package(package):
            return []
        folder = place if place.is_dir() else place.parent
        stems = (file.relative_to(folder).with_suffix("").parts for file in folder.rglob("*.py"))
        names = {".".join([package, *parts]).removesuffix(".__init__") for parts in stems}
        return sorted(names - {package})

    def data_files(self, module: str) -> Mapping[str, Path]:
        """The files beside a module that are not Python, by relative path."""
        place = self.place(module)
        if place is None:
            return {}
        folder = place if place.is_dir() else place.parent
        if self.is_at_top(module):
            return {}  # they are whatever lies in the project
        files = (file for file in folder.rglob("*") if file.is_file())
        return {
            file.relative_to(folder).as_posix(): file
            for file in files
            if file.suffix not in (".py", ".pyc")
        }

    def _homes_of(self, head: str) -> tuple[Path, ...]:
        if head not in self._homes:
            find = _homes if head in self._packages else _below
            self._homes[head] = find(self._root, head)
        return self._homes[head]

    def _find(self, module: str) -> Path | None:
        if "/" in module:  # a path such as ../../pairs.jsonl, which may stand among a stage's texts
            return None
        head, *rest = module.split(".")
        homes = self._homes_of(head)
        # A project's own package hides an installed one of that name with all that is in it.
        own = [home for home in homes if _source(home.joinpath(head, *rest[:1])) is not None]
        stems = [
            home.joinpath(head, *rest)
            for home in own[:1] or homes
            if not any(_is_a_file(home.joinpath(head, *rest[:n])) for n in range(len(rest)))
        ]
        files = [file for stem in stems if (file := _source(stem)) is not None]
        return next(iter(files), None) or next((stem for stem in stems if stem.is_dir()), None)


def _source(stem: Path) -> Path | None:
    """The file of a package or module."""
    candidates = (stem / "__init__.py", stem.with_name(f"{stem.name}.py"))
    return next((file for file in candidates if file.is_file()), None)


def _is_a_file(stem: Path) -> bool:
    """True of a module in which nothing lies: a folder of its name is none Python looks into."""
    return stem.with_name(f"{stem.name}.py").is_file() and not (stem / "__init__.py").is_file()


def _homes(root: Path, package: str) -> tuple[Path, ...]:
    """The directories that hold a first-party package, the project's own first."""
    found = [root] if (root / package).is_dir() or (root / f"{package}.py").is_file() else []
    if package in SHARED and len(beside(package, [str(root / package)])) > 1:
        found.append(home())
    if not found:
        spec = find_spec(package)
        locations = spec.submodule_search_locations if spec is not None else None
        if locations:
            found = [Path(next(iter(locations))).parent]
        elif spec is not None and spec.has_location and spec.origin:
            found = [Path(spec.origin).parent]
    return tuple(found)


def _below(root: Path, head: str) -> tuple[Path, ...]:
    """The directory below `root` from which Python would import a module that nobody named."""
    if (root / f"{head}.py").is_file() or (root / head / "__init__.py").is_file():
        return (root,)
    if head in sys.stdlib_module_names:
        return ()
    try:
        spec = find_spec(head)
    except (ImportError, ValueError):
        return ()
    if spec is not None and spec.has_location:
        place = Path(str(spec.origin))
        found = [place.parents[1] if place.name == "__init__.py" else place.parent]
    else:
        # A package that is installed goes before a folder without `__init__.py`.
        found = [root] if (root / head).is_dir() else []
        folders = spec.submodule_search_locations if spec is not None else None
        found += [Path(folder).parent for folder in folders or ()]
    own = (home for home in found if home == root or root in home.parents)
    return tuple(home for home in own if not {"site-packages", "dist-packages"} & {*home.parts})[:1]
