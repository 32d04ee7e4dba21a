"""Where the files of an archive lie, after each header was found to be one that a release has.

A tar can hold links, devices, holes of a terabyte, two files of one name and headers that grow what
follows. `contents.write_archive` writes none of these, so none is read, and nothing is unpacked or
set aside on the word of a header.
"""

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from tarfile import BLOCKSIZE
from typing import IO

from posttrain.stage.errors import UserError

MOST_FILES = 20_000
"""Files of a release."""
# A longer name than any file system takes.
_MOST_HEADER = 8192
_SIZE = re.compile(rb"[0-7]{11}\0")
_RECORD = re.compile(rb"(\d{1,5}) (path|size)=([^\n]*)\n")


def entries(stream: IO[bytes], where: str) -> dict[str, tuple[int, int]]:
    """Find the files of an archive.

    Args:
        stream: The archive; it is moved about.
        where: Its name, for errors.

    Returns:
        By name, where each file begins and how many bytes it has.

    Raises:
        UserError: There is something in it that no release has.

    """
    found: dict[str, tuple[int, int]] = {}
    try:
        for name, start, size in _entries(stream):
            if name in found:
                raise ValueError(f"{name!r} is there twice")
            if len(found) == MOST_FILES:
                raise ValueError(f"there are more than {MOST_FILES} files")
            found[name] = (start, size)
    except ValueError as error:
        raise UserError(f"{where} is no archive of a release: {error}") from None
    return found


def check_names(names: Iterable[str]) -> list[str]:
    """Sort names of files; one that leads elsewhere, or that a terminal would obey, is refused."""
    found = []
    for name in names:
        parts = PurePosixPath(name).parts
        if not name.isprintable() or not parts or ".." in parts or "/".join(parts) != name:
            raise UserError(
                f"the release has a file called {ascii(name)}, which leads out of its folder or "
                "cannot be shown"
            )
        found.append(name)
    return sorted(found)


def _entries(stream: IO[bytes]) -> Iterator[tuple[str, int, int]]:
    length, at, number = stream.seek(0, io.SEEK_END), 0, 0
    stated: dict[str, str] = {}
    while True:
        number += 1
        stream.seek(at)
        header = stream.read(BLOCKSIZE)
        if header == bytes(BLOCKSIZE) and not stated:
            return
        if len(header) < BLOCKSIZE or header[257:265] != b"ustar\x0000":
            raise ValueError(f"entry {number} has no header, or it is cut off")
        kind, field = header[156:157], header[124:136]
        if kind not in (b"0", b"x") or not _SIZE.fullmatch(field):
            raise ValueError(f"entry {number} is no plain file of a stated size")
        start, size = at + BLOCKSIZE, int(stated.get("size") or int(field[:-1], 8))
        if size > length - start:
            raise ValueError(f"entry {number} is larger than the archive")
        at = start + -(-size // BLOCKSIZE) * BLOCKSIZE
        if kind == b"x":
            if stated or size > _MOST_HEADER:
                raise ValueError(f"entry {number} has a header that no release has")
            stated = _read_extended(stream.read(size), number)
            continue
        name = stated.get("path") or header[:100].rstrip(b"\0").decode("ascii")
        stated = {}
        yield name, start, size


def _read_extended(header: bytes, number: int) -> dict[str, str]:
    """Read a name or size that has no place in a plain header."""
    found: dict[str, str] = {}
    while header:
        record = _RECORD.match(header)
        if record is None or int(record[1]) != record.end():
            raise ValueError(f"entry {number} has a header that no release has")
        found[record[2].decode()] = record[3].decode()
        header = header[record.end() :]
    if not found.get("size", "0").isdecimal():
        raise ValueError(f"entry {number} is no plain file of a stated size")
    return found
