"""Remotes of DVC: send objects of the cache there, and see what lies at an address."""

from pathlib import Path
from typing import Any

from posttrain.provenance.dvc.repository import open_repo
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.hashing import CacheName, sha256_of

# What object stores and file systems call the version of a file, best first.
_VERSIONS = ("ETag", "etag", "md5", "checksum", "VersionId", "mtime", "LastModified")


def push_object(root: Path, md5: CacheName) -> None:
    """Upload one object, with the files of a directory, and see that it arrived.

    Args:
        root: The project's root.
        md5: Name of the object in the cache.

    Raises:
        UserError: There is no default remote, it cannot be written to, or the object is not there
            afterwards.

    """
    from dvc.config import NoRemoteError
    from dvc.exceptions import DvcException
    from dvc_data.hashfile.hash_info import HashInfo

    repo = open_repo(root)
    try:
        repo.cloud.push([HashInfo("md5", md5)])
        odb = repo.cloud.get_remote_odb(None, "push")
    except NoRemoteError:
        raise UserError(
            f"{root} has no default DVC remote; set one with dvc remote add --default NAME URL"
        ) from None
    except (DvcException, OSError) as error:
        raise UserError(f"the DVC remote cannot be written to: {error}") from None
    # A push may pass over what DVC remembers as uploaded.
    if not odb.exists(md5):
        raise UserError(f"the DVC remote does not have {md5} after the upload; try again")


def remote_digest(root: Path, address: str) -> str:
    """Compute the SHA-256 over names, sizes and versions of all files at a remote address.

    Args:
        root: The project's root.
        address: ``remote://NAME/path``.

    Returns:
        The digest, in hex; nothing is downloaded.

    Raises:
        UserError: DVC knows no such remote, or nothing is there.

    """
    from dvc.config import Config
    from dvc.fs import get_cloud_fs

    name, _, path = address.removeprefix("remote://").partition("/")
    config = Config(dvc_dir=str(root / ".dvc"))
    remotes = config["remote"]
    if name not in remotes:
        hint = nearest(name, remotes) or "; add it with `dvc remote add`"
        raise UserError(f"{address}: DVC knows no remote '{name}'{hint}")
    cls, settings, base = get_cloud_fs(config, name=name)
    files = cls(**settings)
    top = files.join(base, path) if path else base
    found = {entry: files.info(entry) for entry in _list_files(files, top)}
    if not found:
        raise UserError(f"{address}: nothing is there")
    lines = [f"{entry} {_version(info)}" for entry, info in sorted(found.items())]
    return sha256_of("\n".join(lines))


def _list_files(files: Any, top: str) -> list[str]:
    # A listing that was read before would hide what came since.
    files.fs.invalidate_cache()
    return list(files.find(top)) if files.isdir(top) else [top] * files.exists(top)


def _version(info: dict[str, Any]) -> str:
    versions = [f"{key}={info[key]}" for key in _VERSIONS if info.get(key) is not None]
    return " ".join([str(info.get("size")), *versions[:1]])
