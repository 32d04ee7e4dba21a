"""Remotes of DVC: send objects of the cache there, and see what lies at an address."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from posttrain.provenance.dvc.objects import tree
from posttrain.provenance.dvc.repository import open_repo, remote_failures
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.hashing import CacheName, sha256_of

# What object stores and file systems call the version of a file, best first.
_VERSIONS = ("ETag", "etag", "md5", "checksum", "VersionId", "mtime", "LastModified")


class DvcRemote:
    """A remote of a project: objects of the cache, and files of ours beside them.

    Args:
        root: The project's root.
        name: Of the remote; empty takes the default one.

    Raises:
        UserError: There is no such remote, or no default one, or DVC cannot open it.

    """

    def __init__(self, root: Path, name: str = "") -> None:
        from dvc.config import ConfigError, NoRemoteError
        from dvc.exceptions import DvcException

        self._repo = open_repo(root)
        if name:
            _refuse_unknown(name, self._repo.config["remote"])
        try:
            remote = self._repo.cloud.get_remote(name or None, "push")
        except NoRemoteError:
            raise UserError(
                f"{root} has no default DVC remote; set one with dvc remote add --default NAME URL"
            ) from None
        except (DvcException, ConfigError, ImportError) as error:
            raise UserError(f"the DVC remote cannot be opened: {error}") from None
        self.name = str(remote.name)
        self._files, self._top, self._odb = remote.fs, remote.path, remote.odb

    def send(self, objects: Collection[CacheName]) -> list[CacheName]:
        """Upload objects, with the files of directories, and see that they arrived.

        Args:
            objects: Their names in the cache.

        Returns:
            Those that the remote did not have.

        Raises:
            UserError: It cannot be written to, or an object is not there afterwards.

        """
        from dvc_data.hashfile.hash_info import HashInfo
        from dvc_data.hashfile.transfer import transfer

        cache = self._repo.cache.local
        parts = {md5: {md5, *self._files_of(md5)} for md5 in objects}
        with self._explained("written to"):
            lacking = self._lacking(set().union(*parts.values()))
            # Not by DVC's own push: of a directory it sends the list alone, where its files are not
            # named, and then takes them for sent. Here files go first, and their lists after them.
            wanted = [HashInfo("md5", oid) for oid in sorted(lacking)]
            transfer(cache, self._odb, wanted, cache_odb=cache)
            lost = sorted(self._lacking(lacking))
        if lost:
            raise UserError(
                f"the DVC remote '{self.name}' does not have {lost[0]} after the upload;"
                " `dvc push -v` says why it was not taken"
            )
        return [md5 for md5 in objects if parts[md5] & lacking]

    def bring(self, objects: Collection[CacheName]) -> None:
        """Download into the cache what the remote has of some objects, with directories' files.

        Args:
            objects: Their names in the cache.

        Raises:
            UserError: It cannot be read.

        """
        with self._explained("read"):
            self._fetch(objects)
            self._fetch(set().union(*map(self._files_of, objects)))

    def _fetch(self, oids: Collection[str]) -> None:
        from dvc_data.hashfile.hash_info import HashInfo

        there = sorted(set(oids) - self._lacking(oids))
        self._repo.cloud.pull([HashInfo("md5", oid) for oid in there], remote=self.name)

    def _files_of(self, md5: CacheName) -> set[str]:
        """Objects that one consists of; none where its list is not in the cache, or it has none."""
        cache = self._repo.cache.local
        if not Path(cache.oid_to_path(md5)).is_file():
            return set()
        return set(tree(cache, md5).values())

    def _lacking(self, oids: Collection[str]) -> set[str]:
        """Those that the remote does not have, as it says and not as DVC remembers."""
        return set(oids) - set(self._odb.oids_exist(sorted(oids))) if oids else set()

    def files(self, folder: str) -> list[str]:
        """List the names of the files in a folder of the remote; none where it is not."""
        with self._explained("read"):
            place = self._files.join(self._top, folder)
            found = _list_files(self._files, place)
        return sorted(self._files.parts(each)[-1] for each in found)

    def put(self, local: Path, path: str) -> None:
        """Upload a file, in place of what is there.

        Args:
            local: The file.
            path: Where it goes, from the remote's top.

        """
        with self._explained("written to"):
            target = self._files.join(self._top, path)
            self._files.makedirs(self._files.parent(target))
            # No reader finds half of it.
            self._files.put_file(str(local), f"{target}.tmp")
            self._files.move(f"{target}.tmp", target)

    def get(self, path: str, local: Path) -> None:
        """Download a file.

        Args:
            path: Where it is, from the remote's top.
            local: Where it goes.

        """
        with self._explained("read"):
            self._files.get_file(self._files.join(self._top, path), str(local))

    @contextmanager
    def _explained(self, done: str) -> Iterator[None]:
        try:
            yield
        except remote_failures() as error:
            raise UserError(f"the DVC remote '{self.name}' cannot be {done}: {error}") from None


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
    _refuse_unknown(name, remotes, where=f"{address}: ")
    cls, settings, base = get_cloud_fs(config, name=name)
    files = cls(**settings)
    top = files.join(base, path) if path else base
    found = {entry: files.info(entry) for entry in _list_files(files, top)}
    if not found:
        raise UserError(f"{address}: nothing is there")
    lines = [f"{entry} {_version(info)}" for entry, info in sorted(found.items())]
    return sha256_of("\n".join(lines))


def _refuse_unknown(name: str, remotes: Collection[str], *, where: str = "") -> None:
    if name not in remotes:
        hint = nearest(name, remotes) or "; add it with `dvc remote add`"
        raise UserError(f"{where}DVC knows no remote '{name}'{hint}")


def _list_files(files: Any, top: str) -> list[str]:
    # A listing that was read before would hide what came since.
    files.fs.invalidate_cache()
    return list(files.find(top)) if files.isdir(top) else [top] * files.exists(top)


def _version(info: dict[str, Any]) -> str:
    versions = [f"{key}={info[key]}" for key in _VERSIONS if info.get(key) is not None]
    return " ".join([str(info.get("size")), *versions[:1]])
