"""Write what a verb produced to the file that the user named."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posttrain.errors import UserError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place to write to that takes the place of `path` by rename at the end of the block.

    An error or a full disk leaves the old file as it was.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text`."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
