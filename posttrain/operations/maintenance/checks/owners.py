"""Which artifact, and which stage, an object of the cache belongs to."""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from posttrain.operations.maintenance.cache import Objects
from posttrain.operations.maintenance.reading import ledger_as_it_is
from posttrain.provenance.ledger import Run, StageRun


@dataclass(frozen=True)
class Owner:
    """The last run that made an object: `path` is the artifact, relative to the recipe's folder.

    `member` is the file inside the artifact, where that is a directory.
    """

    path: str
    stage: str
    run: str
    recipe: str
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
        recipes = {run.id: run for run in ledger.runs()}
        found: dict[str, Owner] = {}
        for each in ledger.every_stage_run():
            _add(found, each, recipes.get(each.run_id))
    for oid, owner in [item for item in found.items() if item[0].endswith(".dir")]:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            for entry in json.loads(objects.path(oid).read_bytes()):
                member = Owner(owner.path, owner.stage, owner.run, owner.recipe, entry["relpath"])
                found.setdefault(str(entry["md5"]), member)
    return found


def _add(found: dict[str, Owner], stage_run: StageRun, run: Run | None) -> None:
    recipe = run.recipe if run else ""
    for record in stage_run.outputs:
        if record.md5 is not None:
            found[record.md5] = Owner(record.path, stage_run.stage, stage_run.run_id, recipe)
