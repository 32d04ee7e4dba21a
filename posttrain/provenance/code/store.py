"""What is remembered between runs: the tables of modules, for as long as their source stays."""

import contextlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from posttrain.provenance.code.symbols import ModuleTable
from posttrain.stage.files import replacing
from posttrain.stage.hashing import sha256_of


class TableStore:
    """Tables of modules by the digest of their source, in one JSON file under its own checksum.

    Losing or damaging the file costs parsing again. It is replaced atomically; of two processes
    that save at once, one wins.
    """

    def __init__(self, folder: Path | None, packages: tuple[str, ...]) -> None:
        self._file = folder / "symbols.json" if folder is not None else None
        self._validity = f"{_analyzer()} {' '.join(packages)}"
        self._rows: dict[str, Any] = self._load()
        self._changed = False

    def get(self, module: str, digest: str) -> ModuleTable | None:
        """Look up the table of exactly this source.

        Args:
            module: Dotted name.
            digest: Of its source.

        Returns:
            The table; None where the source has changed or was never read.

        """
        known = self._rows.get(module)
        return ModuleTable.from_json(known[1]) if known and known[0] == digest else None

    def put(self, module: str, digest: str, table: ModuleTable) -> None:
        """Remember a table until the module's source changes.

        Args:
            module: Dotted name.
            digest: Of its source.
            table: What the source defines and uses.

        """
        self._rows[module] = (digest, table)
        self._changed = True

    def save(self) -> None:
        """Write the file where something was learned; a read-only place only costs the memory."""
        if not self._changed or self._file is None:
            return
        payload = json.dumps([self._validity, self._rows], separators=(",", ":")).encode()
        checksum = sha256_of(payload).encode()
        write_if_possible(self._file, checksum + b"\n" + payload)
        self._changed = False

    def _load(self) -> dict[str, Any]:
        if self._file is None:
            return {}
        try:
            checksum, _, payload = self._file.read_bytes().partition(b"\n")
        except OSError:
            return {}
        if sha256_of(payload).encode() != checksum:
            return {}
        validity, rows = json.loads(payload)
        return dict(rows) if validity == self._validity else {}


def write_if_possible(file: Path, content: bytes) -> None:
    """Replace a cache file atomically; where it cannot be written, the next run works again.

    Args:
        file: Replaced where it exists; its folder is made.
        content: All of it.

    """
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as partial:
            partial.write_bytes(content)


@cache
def _analyzer() -> str:
    """Digest of this package itself: tables that another version of it made are not trusted."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return sha256_of(b"\0".join(source.read_bytes() for source in sources))
