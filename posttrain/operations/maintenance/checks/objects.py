"""The DVC cache: whether its objects are what their names say, and what each of them is of."""

import contextlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from posttrain.operations.maintenance.cache import Objects, read_objects
from posttrain.operations.maintenance.checks.finding import CheckScope, Finding
from posttrain.operations.maintenance.git import outputs_now
from posttrain.operations.maintenance.reading import ledger_as_it_is
from posttrain.provenance.dvc.guard import guarded
from posttrain.provenance.ledger.location import recipe_folders
from posttrain.provenance.lineage.artifacts import object_folder
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import bytesize
from posttrain.stage.hashing import md5_of_file

_SAMPLE = 64
_SAMPLE_BYTES = 256 << 20
_SHOWN = 5


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
        inside = PurePosixPath(self.path, self.member)
        return [folder / inside for folder in recipe_folders(root)]


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


Known = Mapping[str, Owner]


def cache(place: CheckScope) -> Iterator[Finding]:
    """Hash a sample of the objects, or all; look for those that a dvc.lock here names."""
    folder = object_folder(place.project)
    objects = read_objects(folder.parents[1])
    chosen = objects.whole if place.deep else _sample(objects)
    bad = [oid for oid in chosen if not sound(objects, oid)]
    total = sum(size for size, _ in objects.found.values())
    yield Finding(
        "cache",
        "ok",
        f"{len(chosen) - len(bad):,} objects hashed and sound, of {len(objects.whole):,} with "
        f"{bytesize(total)}{'' if place.deep else ' (all: --deep)'}",
    )
    known = owners(place.project, objects)
    lost, elsewhere = _missing(place, objects, known)
    yield from _report_damage(
        place, objects, known, {**dict.fromkeys(lost, "gone"), **dict.fromkeys(bad, "damaged")}
    )
    if elsewhere:
        says = f"{elsewhere:,} artifacts that a dvc.lock names were never here"
        yield Finding("cache", "ok", f"{says}; posttrain run makes them, dvc pull fetches them")


def sound(objects: Objects, oid: str) -> bool:
    """Return whether the bytes hash to the name; what is gone meanwhile is not damaged."""
    try:
        return md5_of_file(objects.path(oid)) == oid.removesuffix(".dir")
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _report_damage(
    place: CheckScope, objects: Objects, known: Known, bad: Mapping[str, str]
) -> Iterator[Finding]:
    """One line for each of the first bad objects; with `--fix` each of them is seen to."""
    back = {oid for oid in bad if place.fixes and put_back(place, objects, oid, known.get(oid))}
    for oid, how in list(bad.items())[:_SHOWN]:
        owner = known.get(oid)
        whose = owner.says if owner else "an object that no ledger here knows"
        says = f"{objects.path(oid)} is {how}: {whose}"
        if oid in back:
            yield Finding("cache", "ok", f"{says}; put back from the workspace")
        elif how == "damaged" and not place.fixes:
            yield Finding("cache", "broken", says, remedy(place, oid, owner))
        else:
            yield Finding("cache", "warning", says, remedy(place, oid, owner))
    if len(bad) > _SHOWN:
        says = f"{len(bad):,} objects damaged or gone, of which {len(bad) - len(back):,} are not"
        yield Finding(
            "cache", "warning", f"{says} back", place.how("posttrain doctor --deep --fix")
        )


def _missing(place: CheckScope, objects: Objects, known: Known) -> tuple[list[str], int]:
    """Objects that a dvc.lock names and that are gone, and how many were never made here."""
    wanted = {oid: gone for oid in outputs_now(place.project) if (gone := objects.missing(oid))}
    lost = {each: None for oid, gone in wanted.items() if oid in known for each in gone}
    return list(lost), len(wanted.keys() - known.keys())


def _sample(objects: Objects) -> list[str]:
    """A few objects, other ones each time, that take no more than seconds to read."""
    chosen, size = [], 0
    names = objects.whole
    for oid in random.sample(names, min(_SAMPLE, len(names))):
        size += objects.found[oid][0]
        if size <= _SAMPLE_BYTES:
            chosen.append(oid)
    return chosen
