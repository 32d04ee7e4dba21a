"""What is stored, and what is said about a stage in `dvc.lock`."""

from collections.abc import Mapping
from dataclasses import dataclass

from posttrain.stage.hashing import CacheName

LOCK_FILE = "dvc.lock"
"""Beside `dvc.yaml`: what each stage read and made when it ran last."""


@dataclass(frozen=True)
class StoredObject:
    """An artifact as DVC names it.

    `md5` ends in ``.dir`` for a directory, whose `num_files` are listed in an object of that name;
    `size` is in bytes, summed over the files.
    """

    md5: CacheName
    size: int
    num_files: int | None = None
    executable: bool = False

    def fields(self) -> dict[str, object]:
        """The fields of an entry of `dvc.lock`, in DVC's order."""
        entry: dict[str, object] = {"hash": "md5", "md5": self.md5, "size": self.size}
        if self.num_files is not None:
            entry["nfiles"] = self.num_files
        if self.executable:
            entry["isexec"] = True
        return entry


@dataclass(frozen=True)
class LockEntry:
    """What `dvc.lock` says of one stage; all paths are relative to the directory of `dvc.yaml`.

    `params` maps dotted keys of `params.yaml` to their values. Written exactly as `dvc.yaml`
    spells them: DVC compares text.
    """

    name: str
    cmd: str
    deps: tuple[str, ...]
    params: Mapping[str, object]
    outs: tuple[str, ...]
