"""The first-party source files: where each module lies, and its table, parsed once."""

import contextlib
import sys
from collections.abc import Collection, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from posttrain.provenance.code.archive import ModuleText
from posttrain.provenance.code.store import TableStore
from posttrain.provenance.code.symbols import ModuleTable, Symbol, parse_module
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of_file
from posttrain.stage.installed import SHARED, beside, home


class SourceTree:
    """A snapshot of the first-party modules below `root`; each file is read at most once.

    What `root` lacks is looked for where Python would import it from: a project of the user's own
    runs on the framework's code, and its stages and flows stand beside the installed ones. Modules
    below `root` count however they are found: at its top, in folders without an `__init__.py`, or
    in a folder that is on the path.
    """

    def __init__(self, root: Path, packages: Collection[str], *, cache: Path | None) -> None:
        self._root = root
        self._packages = tuple(packages)
        self._homes: dict[str, tuple[Path, ...]] = {}
        self._places: dict[str, Path | None] = {}
        self._tables: dict[str, ModuleTable | None] = {}
        self._versions: dict[str, str] = {}
        self._digests: dict[Path, str] = {}
        self._store = TableStore(cache, self._packages)

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

    def table(self, module: str) -> ModuleTable | None:
        """The module's table, or None where it has no source."""
        if module not in self._tables:
            source = self._read(module)
            self._tables[module] = None if source is None else self._parsed(module, source)
        return self._tables[module]

    def symbols(self, module: str) -> Mapping[str, Symbol]:
        """What the module defines, by name; nothing where it has no source."""
        table = self.table(module)
        return {} if table is None else table.symbols

    def version(self, module: str) -> str | None:
        """Digest of the text that the module's table was made from."""
        return self._versions.get(module)

    def text(self, module: str) -> ModuleText | None:
        """The module's text as it is on disk now."""
        source = self._read(module)
        return None if source is None else ModuleText(source, _is_init(self.place(module)))

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

    def digest(self, file: Path) -> str:
        """Digest of a data file, as it was when it was first asked for."""
        if file not in self._digests:
            self._digests[file] = sha256_of_file(file)
        return self._digests[file]

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

    def save(self) -> None:
        """Remember the tables of this snapshot for the next one."""
        self._store.save()

    def _homes_of(self, head: str) -> tuple[Path, ...]:
        if head not in self._homes:
            find = _homes if head in self._packages else _below
            self._homes[head] = find(self._root, head)
        return self._homes[head]

    def _find(self, module: str) -> Path | None:
        head, *rest = module.split(".")
        homes = self._homes_of(head)
        # A project's own package hides an installed one of that name with all that is in it.
        own = [home for home in homes if _source(home.joinpath(head, *rest[:1])) is not None]
        stems = [home.joinpath(head, *rest) for home in own[:1] or homes]
        files = [file for stem in stems if (file := _source(stem)) is not None]
        return next(iter(files), None) or next((stem for stem in stems if stem.is_dir()), None)

    def _read(self, module: str) -> bytes | None:
        place = self.place(module)
        return None if place is None or place.suffix != ".py" else place.read_bytes()

    def _parsed(self, module: str, source: bytes) -> ModuleTable:
        place = self.place(module)
        digest = ModuleText(source, _is_init(place)).digest
        self._versions[module] = digest
        table = self._store.get(module, digest)
        if table is None:
            with room_to_recurse(), _explained(place, self._homes_of(module.partition(".")[0])):
                table = parse_module(
                    source, module, is_package=_is_init(place), packages=self._packages
                ).table
            self._store.put(module, digest, table)
        return table


@contextlib.contextmanager
def _explained(place: Path | None, homes: tuple[Path, ...]) -> Iterator[None]:
    """Say in which file what is not Python stands."""
    try:
        yield
    except (SyntaxError, ValueError) as error:
        assert place is not None
        shown = place.relative_to(next(home for home in homes if home in place.parents)).as_posix()
        told = f"{shown}: not Python source ({error})"
        if isinstance(error, SyntaxError):
            told = f"{shown}:{error.lineno}: not valid Python ({error.msg}); correct it"
        raise UserError(told) from None


def _is_init(place: Path | None) -> bool:
    return place is not None and place.name == "__init__.py"


@contextlib.contextmanager
def room_to_recurse() -> Iterator[None]:
    """A sum of a thousand terms is a tree a thousand levels deep, each a few calls to walk."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 50_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _source(stem: Path) -> Path | None:
    """The file of a package or module."""
    candidates = (stem / "__init__.py", stem.with_name(f"{stem.name}.py"))
    return next((file for file in candidates if file.is_file()), None)


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
