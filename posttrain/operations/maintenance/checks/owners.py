"""Which artifact an object of the cache belongs to, and how it comes back where it is bad."""

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from posttrain.operations.maintenance.cache import Objects
from posttrain.operations.maintenance.checks.finding import CheckScope
from posttrain.operations.maintenance.reading import ledger_as_it_is
from posttrain.provenance.dvc.guard import guarded
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import md5_of_file


@dataclass(frozen=True)
class Owner:
    """The last run that made an object: `path` is the artifact, relative to the recipe's folder.

    `member` is the file inside the artifact, where that is a directory.
    """

    path: str
    stage: str
    run: str
    member: str = ""

    @property
    def says(self) -> str:
        """In few words."""
        inside = f"{self.member} of " if self.member else ""
        return f"{inside}{self.path}, made by stage {self.stage} in run {self.run}"

    def places(self, root: Path) -> list[Path]:
        """Where its bytes may lie in the workspace."""
        folders = [root, *sorted(root.glob("recipes/*"))]
        return [folder / PurePosixPath(self.path, self.member) for folder in folders]


def owners(root: Path, objects: Objects) -> dict[str, Owner]:
    """Object -> the newest output that it is, or is a part of, by the project's ledger."""
    with ledger_as_it_is(root) as ledger:
        if ledger is None:
            return {}
        found: dict[str, Owner] = {
            record.md5: Owner(record.path, each.stage, each.run_id)
            for each in ledger.every_stage_run()
            for record in each.outputs
            if record.md5 is not None
        }
    for oid, owner in list(found.items()):
        for md5, path in objects.files(oid).items():
            found.setdefault(md5, replace(owner, member=path))
    return found


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
