"""Write what a verb produced to the file that the user named."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posttrain.stage import files
from posttrain.stage.errors import UserError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """As `stage.files.replacing`, with what the disk refuses said in a sentence."""
    try:
        with files.replacing(path) as partial:
            yield partial
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text`."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
