"""Write what a verb produced to the file that the user named."""

import os
from pathlib import Path

from posttrain.errors import UserError


def write_text(path: Path, text: str) -> None:
    """Write by atomic rename, so that a full disk leaves the old file as it was."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)
