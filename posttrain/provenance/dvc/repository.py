"""Open a DVC repository through its Python interface, without its voice."""

import logging
import os
import secrets
import shutil
import sys
from pathlib import Path
from typing import Any

from posttrain.provenance.git import run_git
from posttrain.stage.errors import UserError
from posttrain.stage.files import nearest_existing


def open_repo(root: Path) -> Any:
    """The repository at `root`; `UserError` says what is missing."""
    from dvc.exceptions import DvcException, NotDvcRepoError
    from dvc.repo import Repo
    from dvc.scm import SCMError

    # At its import dvc sets up handlers that write to the terminal. What matters of it is raised,
    # and then said in a sentence of ours.
    for name in ("dvc", "dvc_data", "dvc_objects"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        repo = Repo(str(root), _wait_for_lock=True)
    except NotDvcRepoError:
        raise UserError(f"{root} has no .dvc folder; restore it with git, or `dvc init`") from None
    except SCMError:
        raise UserError(f"{root} is not in a git repository; run `git init` there") from None
    except DvcException as error:
        raise UserError(f"dvc cannot open {root}: {error}") from None
    except OSError as error:
        # A clone in which nothing ever wrote: DVC wants a folder for its locks.
        raise UserError(
            f"dvc cannot open {root}: {error.filename}: {error.strerror}; make it writable"
        ) from None
    _link_whole(repo.cache.local)
    return repo


def check_repository(root: Path) -> None:
    """Refuse a place where DVC cannot work, before anything is made that it is to keep.

    Args:
        root: The project.

    Raises:
        UserError: There is no git repository, or DVC's own configuration cannot be read.

    """
    if not any((each / ".git").exists() for each in (root, *root.parents)) or _is_none(root):
        raise UserError(f"{root} is not in a git repository; run `git init` there")
    from dvc.config import Config, ConfigError

    try:
        Config(str(root / ".dvc"))
    except ConfigError as error:
        raise UserError(f"{root}/.dvc/config: {error}; correct it") from None
    except OSError:
        pass  # said below, with what to set
    home = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    folder = Path(home) / "dvc"
    if not nearest_existing(folder).is_dir():
        raise UserError(
            f"{nearest_existing(folder)} is no folder, and DVC looks for {folder}/config; set"
            " XDG_CONFIG_HOME, or HOME, to a folder"
        )


def _is_none(root: Path) -> bool:
    """Whether git itself says that what is called `.git` is no repository; DVC does without git."""
    if shutil.which("git") is None:
        return False
    return "not a git repository" in run_git(root, "rev-parse", "--git-dir").stderr


def _link_whole(odb: Any) -> None:
    """Let a clone appear in the cache under its name only when it is whole, as DVC's copies do.

    DVC tries a clone of the file (a reflink) first, into an empty file of the final name: a kill
    before the file system refuses left an empty object.
    """
    clone, cache = odb.fs.reflink, f"{odb.path}{os.sep}"

    def beside(source: str, target: str) -> None:
        if not target.startswith(cache):
            clone(source, target)
            return
        # Ending in what DVC calls its own half-written files.
        half = f"{target}.{secrets.token_hex(8)}.tmp"
        clone(source, half)
        os.replace(half, target)  # noqa: PTH105 - a million files: no objects for paths

    odb.fs.reflink = beside


def remote_failures() -> tuple[type[Exception], ...]:
    """Name what reading or writing a remote may fail with.

    Clients of S3 have errors of their own, and a client that is not installed is one of imports.

    Returns:
        Classes of exceptions, for an `except`, which asks once something went wrong.

    """
    from dvc.exceptions import DvcException

    botocore = sys.modules.get("botocore.exceptions")
    of_s3 = (botocore.BotoCoreError, botocore.ClientError) if botocore else ()
    return (DvcException, ImportError, OSError, *of_s3)
