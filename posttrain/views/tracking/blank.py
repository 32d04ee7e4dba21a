"""Databases as MLflow and Prefect make them, kept blank for the next project of this machine.

Each makes its tables by all the migrations that it ever had, which takes seconds of the processor.
"""

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path


def lay_blank(maker: str, database: Path) -> bool:
    """Put a blank database in its place, where there is none and one was kept.

    Args:
        maker: Name of the distribution; one of another version is not taken.
        database: Its folder is there.

    Returns:
        Whether one was put there; else the maker makes its own.

    """
    kept = _kept(maker)
    if database.exists() or not kept.is_file():
        return False
    partial = database.with_name(f"{database.name}.blank")
    try:
        shutil.copyfile(kept, partial)
        with contextlib.closing(sqlite3.connect(partial)) as connection:
            whole = connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
            whole = (
                whole and connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
            )
        if whole:
            partial.rename(database)
            return True
        kept.unlink()
    except (OSError, sqlite3.Error):
        with contextlib.suppress(OSError):
            kept.unlink()
    with contextlib.suppress(OSError):
        partial.unlink(missing_ok=True)
    return False


def keep_blank(maker: str, database: Path, *, emptied: Sequence[str] = ()) -> None:
    """Keep a copy of a database that is new; where that cannot be, the next project makes its own.

    Args:
        maker: Name of the distribution.
        database: It may be in use.
        emptied: Tables whose rows are of this project.

    """
    kept = _kept(maker)
    if kept.is_file():
        return
    partial = kept.with_name(f"{kept.name}.{os.getpid()}")
    with contextlib.suppress(OSError, sqlite3.Error):
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.execute("VACUUM INTO ?", (str(partial),))
        with contextlib.closing(sqlite3.connect(partial)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
            for table in emptied:
                connection.execute(f'DELETE FROM "{table}"')
            connection.commit()
        partial.replace(kept)


def is_like_blank(maker: str, database: Path) -> bool:
    """Say whether a database has the tables that this version of its maker makes.

    Args:
        maker: Name of the distribution.
        database: Made by Alembic's migrations, as the blank one was.

    """
    versions = [_migrated_to(each) for each in (_kept(maker), database) if each.is_file()]
    return len(versions) == 2 and versions[0] is not None and versions[0] == versions[1]


def _migrated_to(database: Path) -> list[tuple[str]] | None:
    try:
        with contextlib.closing(sqlite3.connect(database)) as connection:
            return connection.execute("SELECT version_num FROM alembic_version").fetchall()
    except sqlite3.Error:
        return None


def _kept(maker: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(cache, "posttrain", f"{maker}-{version(maker)}.db")
