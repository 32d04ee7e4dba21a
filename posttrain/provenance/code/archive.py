"""Texts of the modules that stages ran with, so that a change can be shown after the fact."""

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from posttrain.provenance.code.store import write_if_possible
from posttrain.provenance.code.symbols import parse_module, unparsed
from posttrain.stage.hashing import sha256_of

_NAMED_BY = 16
_LARGEST_DATA = 1 << 20


class ModuleText(NamedTuple):
    """One version of a module's source, and whether it is a package's `__init__.py`."""

    source: bytes
    is_package: bool

    @property
    def digest(self) -> str:
        """Hex SHA-256 under which a source tree knows this version."""
        return sha256_of(b"%d" % self.is_package + self.source)


class SourceArchive:
    """One compressed file per version of a module, written once and never changed.

    Whole modules are kept because that costs one compression for each edit; the source of a symbol
    is cut out when somebody asks. Losing files costs a diff and nothing else.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[str] | None = None

    def has(self, module: str, digest: str) -> bool:
        """Whether this version of a module is kept.

        Args:
            module: Dotted name.
            digest: Of the module's source.

        Returns:
            True where this version of the module is kept.

        """
        if self._known is None:
            self._known = {file.name for file in self._folder.glob("*.z")}
        return _name(module, digest) in self._known

    def keep(self, module: str, text: ModuleText) -> None:
        """Store one version; a folder that cannot be written only loses the diff.

        Args:
            module: Dotted name.
            text: Its source.

        """
        name = _name(module, text.digest)
        content = zlib.compress(b"%d" % text.is_package + text.source, 1)
        write_if_possible(self._folder / name, content)
        if self._known is not None:
            self._known.add(name)

    def keep_data(self, path: Path, digest: str) -> None:
        """Store a data file that code reads; a large one is left.

        Args:
            path: The file.
            digest: Hex SHA-256 of what it held.

        """
        target = self._folder / f"data.{digest}.z"
        if target.exists() or path.stat().st_size > _LARGEST_DATA:
            return
        content = path.read_bytes()
        if sha256_of(content) == digest:
            write_if_possible(target, zlib.compress(content, 1))

    def data(self, digest: str) -> str | None:
        """The text of a data file with this digest; None where it was not kept, or is no text."""
        try:
            return zlib.decompress((self._folder / f"data.{digest}.z").read_bytes()).decode()
        except (OSError, ValueError, zlib.error):
            return None

    def versions(self, module: str) -> Iterator[ModuleText]:
        """Every version of a module that is kept and whole, newest first."""
        files = self._folder.glob(f"{module}.{'?' * _NAMED_BY}.z")
        for file in sorted(files, key=lambda file: -file.stat().st_mtime_ns):
            try:
                content = zlib.decompress(file.read_bytes())
            except zlib.error:
                continue
            text = ModuleText(content[1:], content[:1] == b"1")
            if file.name == _name(module, text.digest):
                yield text


def recovered(
    symbol: str, digest: str, texts: Iterable[ModuleText], packages: Iterable[str]
) -> str | None:
    """Find the normalized source of a symbol as it once was.

    Args:
        symbol: ``module:name``.
        digest: Of the symbol's code then.
        texts: Versions of the module to look through.
        packages: First-party packages, which names are resolved in.

    Returns:
        The source out of the first version in which the symbol has this digest; None where none
        has.

    """
    module, _, name = symbol.partition(":")
    first_party = tuple(packages)
    for text in texts:
        try:
            found = parse_module(
                text.source, module, is_package=text.is_package, packages=first_party
            )
        except (SyntaxError, ValueError):
            continue
        known = found.table.symbols.get(name)
        if known is not None and known.digest == digest:
            return unparsed(found.nodes[name])
    return None


def _name(module: str, digest: str) -> str:
    return f"{module}.{digest[:_NAMED_BY]}.z"
