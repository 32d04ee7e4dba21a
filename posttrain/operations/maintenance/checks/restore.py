"""How an object of the cache that is damaged or gone comes back: from the workspace, or else."""

import contextlib
from pathlib import Path

from posttrain.operations.maintenance.cache import Objects
from posttrain.operations.maintenance.checks.finding import CheckScope
from posttrain.operations.maintenance.checks.owners import Owner
from posttrain.provenance.dvc.guard import guarded
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import md5_of_file


def put_back(place: CheckScope, objects: Objects, oid: str, owner: Owner | None) -> bool:
    """Take the bytes from the workspace where they are still the same; else remove what is bad.

    True where the object is back.
    """
    from posttrain.provenance.dvc import DvcStore

    with guarded(objects.folder.parents[1], alone=True), contextlib.suppress(FileNotFoundError):
        objects.path(oid).unlink()
    source = _source(place, oid, owner)
    if source is not None:
        with contextlib.suppress(UserError):
            DvcStore(place.project, place.project).store([source])
    return objects.path(oid).is_file()


def remedy(place: CheckScope, oid: str, owner: Owner | None) -> str:
    """What to do about an object that is not back."""
    fetch = "dvc pull where a remote has it"
    anew = f"posttrain run makes it anew (stage {owner.stage})" if owner else "posttrain run"
    if place.fixes:
        return f"{fetch}; else {anew}"
    fix = "posttrain doctor --deep --fix"
    if _source(place, oid, owner) is not None:
        return place.how(f"{fix} puts it back from the workspace, which still has it")
    return place.how(f"{fix} removes what is damaged; then {fetch}, else {anew}")


def _source(place: CheckScope, oid: str, owner: Owner | None) -> Path | None:
    """A file with these bytes, or, for the list of a directory, that directory."""
    for path in owner.places(place.project) if owner else ():
        if path.is_dir() and oid.endswith(".dir"):
            return path
        if path.is_file() and md5_of_file(path) == oid:
            return path
    return None
