"""A stage's log, read as it grows."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass
class LogTail:
    """Whole lines of a log, each once."""

    path: Path
    place: int = 0
    rest: str = ""

    def lines(self) -> Iterator[str]:
        """Read the lines that came since; none while there is no file."""
        try:
            with self.path.open("rb") as stream:
                stream.seek(self.place)
                new = stream.read()
        except FileNotFoundError:
            return
        self.place += len(new)
        *whole, self.rest = (self.rest + new.decode("utf-8", errors="replace")).split("\n")
        yield from whole
