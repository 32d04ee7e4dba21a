"""The DVC cache as nodes: one for each artifact that a ledger knows, one for everything else."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from posttrain.operations.maintenance.claims import Claims
from posttrain.operations.maintenance.policy import RemovableKind, StoredItem

FOREIGN = "no ledger here knows it"
YOUNG = "made since a run began that is under way"
LOST = "the list of its files is gone"
_UNFINISHED = ".tmp"
_KINDS: Mapping[str, RemovableKind] = {"rollouts": "rollouts"}


@dataclass(frozen=True)
class Objects:
    """The files of a cache: object -> bytes and the time of its last change.

    Among `found` are what kills and full disks left of objects that were being written.
    """

    folder: Path
    found: Mapping[str, tuple[int, float]]

    @property
    def whole(self) -> list[str]:
        """Names of the objects that were written to their end, sorted."""
        return sorted(oid for oid in self.found if not oid.endswith(_UNFINISHED))

    def path(self, oid: str) -> Path:
        """Where an object lies."""
        return self.folder / oid[:2] / oid[2:]

    def files(self, oid: str) -> dict[str, str]:
        """Object -> path within a directory, by its list; none where it is no list."""
        try:
            listed = json.loads(self.path(oid).read_bytes()) if oid.endswith(".dir") else ()
            return {str(entry["md5"]): str(entry["relpath"]) for entry in listed}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def missing(self, oid: str) -> list[str]:
        """Of the object and, for a directory, its files those that are not there."""
        return [each for each in (oid, *self.files(oid)) if each not in self.found]

    def members(self, oid: str) -> list[str]:
        """The object itself and, for a directory, its files; those that are there."""
        return [each for each in (oid, *sorted(self.files(oid))) if each in self.found]


def read_objects(cache: Path) -> Objects:
    """Look at every file of the cache; what disappears meanwhile is not there."""
    folder = cache / "files" / "md5"
    found: dict[str, tuple[int, float]] = {}
    for path in folder.glob("[0-9a-f][0-9a-f]/*"):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        changed = max(status.st_mtime, status.st_ctime)
        found[path.parent.name + path.name] = (status.st_size, changed)
    return Objects(folder, found)


def nodes_of(
    objects: Objects, claims: Claims, named: Mapping[str, str], *, doomed: set[str], since: float
) -> Iterator[StoredItem]:
    """Artifacts with their reasons; objects younger than `since` have one more.

    `doomed` are objects that an earlier, interrupted removal had begun to remove: they are known.
    """
    reached: set[str] = set()
    for oid in sorted(claims.used.keys() | named.keys() | doomed):
        members = objects.members(oid)
        if not members:
            continue
        reached.update(members)
        reasons = [*claims.reasons.get(oid, ())]
        if oid in named:
            reasons.insert(0, named[oid])
        if any(objects.found[each][1] >= since for each in members):
            reasons.append(YOUNG)
        yield StoredItem(
            claims.names.get(oid, oid),
            _KINDS.get(claims.types.get(oid, ""), "artifact"),
            {each: objects.found[each][0] for each in members},
            claims.used.get(oid, 0.0),
            tuple(reasons),
        )
    rest = objects.found.keys() - reached
    foreign = {oid: objects.found[oid][0] for oid in rest.intersection(objects.whole)}
    if foreign:
        yield StoredItem("other objects", "artifact", foreign, reasons=(FOREIGN,))
    for oid in sorted(rest - foreign.keys()):
        size, changed = objects.found[oid]
        yield StoredItem(oid, "staging", {oid: size}, changed, (YOUNG,) if changed >= since else ())


def stale_run_cache(cache: Path, objects: Objects, gone: frozenset[str]) -> Iterator[StoredItem]:
    """Entries of DVC's run cache whose outputs are not in the cache, or are about to leave it."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    for path in sorted((cache / "runs").glob("*/*/*")):
        try:
            entry = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
            wanted = {str(out["md5"]) for out in entry.get("outs", ()) if "md5" in out}
            size = path.stat().st_size
        except (OSError, YAMLError, AttributeError, TypeError):
            continue
        lost = any(oid in gone or oid not in objects.found for oid in wanted)
        reasons = () if lost else ("its outputs are in the cache",)
        yield StoredItem(path.name[:12], "run cache", {str(path): size}, reasons=reasons)
