"""The first-party source files: the table of each module, parsed once."""

import contextlib
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from posttrain.provenance.code.archive import ModuleText
from posttrain.provenance.code.places import ModulePlaces
from posttrain.provenance.code.seen import SeenFiles
from posttrain.provenance.code.store import TableStore
from posttrain.provenance.code.symbols import ModuleTable, Symbol, parse_module
from posttrain.stage.errors import UserError


class SourceTree(ModulePlaces):
    """A snapshot of the first-party modules below `root`; each file is read at most once."""

    def __init__(
        self,
        root: Path,
        packages: Collection[str],
        *,
        cache: Path | None,
        passing: Collection[str] = (),
    ) -> None:
        super().__init__(root, packages)
        self.seen = SeenFiles(passing)
        self._tables: dict[str, ModuleTable | None] = {}
        self._versions: dict[str, str] = {}
        self._store = TableStore(cache, self._packages)

    def table(self, module: str) -> ModuleTable | None:
        """The module's table, or None where it has no source."""
        if module not in self._tables:
            place = self._source(module)
            source = None if place is None else self.seen.read(place)
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
        place = self._source(module)
        return None if place is None else ModuleText(place.read_bytes(), _is_init(place))

    def save(self) -> None:
        """Remember the tables of this snapshot for the next one."""
        self._store.save()

    def _source(self, module: str) -> Path | None:
        place = self.place(module)
        return None if place is None or place.suffix != ".py" else place

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
