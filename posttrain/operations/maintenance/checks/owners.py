"""Which artifact, and which stage, an object of the cache belongs to."""

from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from posttrain.operations.maintenance.cache import Objects
from posttrain.operations.maintenance.reading import ledger_as_it_is


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
        found = {
            record.md5: Owner(record.path, each.stage, each.run_id)
            for each in ledger.every_stage_run()
            for record in each.outputs
            if record.md5 is not None
        }
    for oid, owner in list(found.items()):
        for md5, path in objects.files(oid).items():
            found.setdefault(md5, replace(owner, member=path))
    return found
