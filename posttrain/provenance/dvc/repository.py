"""Open a DVC repository through its Python interface, without its voice."""

import logging
import os
import secrets
import sys
from pathlib import Path
from typing import Any

from posttrain.stage.errors import UserError


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
    _link_whole(repo.cache.local)
    return repo


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
    """Name what reading or writing a remote may fail with: clients of S3 have errors of their own.

    Returns:
        Classes of exceptions, for an `except`, which asks once something went wrong.

    """
    from dvc.exceptions import DvcException

    botocore = sys.modules.get("botocore.exceptions")
    of_s3 = (botocore.BotoCoreError, botocore.ClientError) if botocore else ()
    return (DvcException, OSError, *of_s3)
