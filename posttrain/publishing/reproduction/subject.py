"""What is to be run again: the stage runs behind a name, and the recipe that they came from."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from posttrain.pipeline.execution.session import Session, open_session
from posttrain.pipeline.recipe import load_recipe
from posttrain.provenance.key import Difference, differences
from posttrain.provenance.ledger import Ledger, Run, StageRun
from posttrain.provenance.ledger.location import RECIPE_FILE, recipe_folders
from posttrain.provenance.ledger.records import DONE
from posttrain.provenance.lineage.names import find_run
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.hashing import digest_path

# What a person wrote and gave; packages and machine may differ where figures are compared.
WORK = ("code", "params", "inputs")
EVERYTHING = (*WORK, "packages", "runtime")


@dataclass(frozen=True)
class Subject:
    """A run, and those of its stages that are to be run again, by name in the DAG's order."""

    run: Run
    records: Mapping[str, StageRun]
    alone: bool
    """Return whether one stage was asked for, and not a whole run."""

    @property
    def id(self) -> str:
        """What a verification is kept under."""
        return next(iter(self.records.values())).id if self.alone else self.run.id

    def with_run(self, holds: Mapping[str, bool | None]) -> dict[str, bool]:
        """What holds of stage runs by id, and of their run where all of it was asked for.

        Of what is None, nothing is said, nor of the run, unless another stage run fails.
        """
        judged = {name: each for name, each in holds.items() if each is not None}
        holding = all(judged.values())
        if not self.alone and (len(judged) == len(holds) or not holding):
            judged[self.run.id] = holding
        return judged

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"{next(iter(self.records))}@{self.run.id}" if self.alone else f"run {self.run.id}"


def find_subject(ledger: Ledger, name: str) -> Subject:
    """RUN or STAGE@RUN; refuses what is unknown, and what brought nothing about."""
    stage, separator, run_name = name.rpartition("@")
    run = find_run(ledger, run_name)
    made = {each.stage: each for each in ledger.stage_runs(run.id) if each.status in DONE}
    if not made:
        raise UserError(f"run {run.id} made nothing that could be verified")
    if not separator:
        return Subject(run, made, alone=False)
    if stage not in made:
        raise UserError(
            f"run {run.id} has no finished stage '{stage}'{nearest(stage, made)}; "
            f"it has {', '.join(made)}"
        )
    return Subject(run, {stage: made[stage]}, alone=True)


@contextmanager
def opened(subject: Subject, root: Path, *, groups: Sequence[str]) -> Iterator[Session]:
    """The run's recipe as the working tree has it; refuses where the work would be another one."""
    overrides = [f"{name}={value}" for name, value in subject.run.overrides.items()]
    refusals = []
    for folder in _recipes(root, subject.run.recipe):
        with open_session(folder, overrides) as session:
            refusal = _first_difference(session, subject, groups)
            if refusal is None:
                yield session
                return
            refusals.append(refusal)
    raise UserError(refusals[0])


def _recipes(root: Path, name: str) -> list[Path]:
    """Folders of the project whose recipe has the name that the ledger knows it by."""
    there, broken = dict[Path, str](), list[UserError]()
    for folder in recipe_folders(root):
        if (folder / RECIPE_FILE).is_file():
            try:
                there[folder] = load_recipe(folder).name
            except UserError as error:
                # Of another run, most likely: that one is none of this run's business.
                broken.append(error)
    found = sorted(
        (folder for folder, each in there.items() if each == name), key=lambda each: len(each.parts)
    )
    if not found:
        if broken:
            raise broken[0]
        raise UserError(
            f"no recipe of this project is called '{name}'{nearest(name, there.values())}; "
            "put it back, then verify"
        )
    return found


def _first_difference(session: Session, subject: Subject, groups: Sequence[str]) -> str | None:
    for record in subject.records.values():
        if record.stage not in session.dag.stages:
            found = f"the flow has no stage '{record.stage}' now"
            return f"{subject.name} cannot be run again: {found}; {_remedy(subject.run, None)}"
        inputs = dict(record.components.get("inputs", {})) | _given(session, record.stage)
        key = session.planner.keys.key(record.stage, inputs)
        differs = [
            each
            for each in differences(record.components, key.components)
            if each.component in groups
        ]
        if differs:
            return (
                f"stage '{record.stage}' of run {subject.run.id} cannot be run again as it was: "
                f"{differs[0].sentence}; {_remedy(subject.run, differs[0])}"
            )
    return None


def _given(session: Session, stage: str) -> dict[str, str]:
    """Digests that the files from outside the DAG have now."""
    references = session.dag.stages[stage].inputs
    return {
        role: digest_path(ref.path, cache=session.stat_cache).sha256
        for role, ref in references.items()
        if ref.path is not None
    }


def _remedy(run: Run, difference: Difference | None) -> str:
    if difference is not None and difference.component in ("packages", "runtime"):
        return "verify it in the environment of that run"
    if difference is not None and difference.component == "inputs":
        return "put the file back as it was, then verify"
    if run.git_commit is None:
        return "that run was of no commit: verify a newer one"
    changed = " (which had changes that were never committed)" if run.git_dirty else ""
    return f"check out commit {run.git_commit[:12]}{changed} to verify it"
