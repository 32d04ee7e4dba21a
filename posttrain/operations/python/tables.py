"""`posttrain.load`: an artifact as polars, datasets, torch, JSON or its path."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from posttrain.operations.python.project import AnyPath, OpenProject, open_project
from posttrain.pipeline.recipe import load_recipe
from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.ledger import ArtifactRecord
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.provenance.lineage.names import find_run
from posttrain.publishing.release.names import Tag, parse_tag, parse_version
from posttrain.stage.artifact_kinds import ArtifactKind, kind_named
from posttrain.stage.errors import UserError, nearest

if TYPE_CHECKING:
    import datasets
    import polars as pl

Format = Literal["polars", "datasets", "torch", "json", "path"]


@dataclass(frozen=True)
class Artifact:
    """Where an artifact lies, and what kind it is."""

    name: str
    kind: ArtifactKind
    path: Path


@overload
def load(
    name: str,
    *,
    recipe: AnyPath = ".",
    run: str | None = None,
    release: str | None = None,
    format: Literal["polars"] = "polars",
    columns: Sequence[str] | None = None,
    where: str | None = None,
) -> "pl.DataFrame": ...
@overload
def load(
    name: str,
    *,
    recipe: AnyPath = ".",
    run: str | None = None,
    release: str | None = None,
    format: Literal["datasets"],
    columns: Sequence[str] | None = None,
    where: str | None = None,
) -> "datasets.Dataset": ...
@overload
def load(
    name: str,
    *,
    recipe: AnyPath = ".",
    run: str | None = None,
    release: str | None = None,
    format: Literal["path"],
    columns: Sequence[str] | None = None,
    where: str | None = None,
) -> Path: ...
@overload
def load(
    name: str,
    *,
    recipe: AnyPath = ".",
    run: str | None = None,
    release: str | None = None,
    format: Format,
    columns: Sequence[str] | None = None,
    where: str | None = None,
) -> Any: ...
def load(
    name: str,
    *,
    recipe: AnyPath = ".",
    run: str | None = None,
    release: str | None = None,
    format: Format = "polars",
    columns: Sequence[str] | None = None,
    where: str | None = None,
) -> Any:
    """Read an artifact: what lies in the workspace, or what a run or a release had.

    Args:
        name: `STAGE.OUTPUT`, such as `rl.rollouts`.
        recipe: A recipe's file, or a folder that has `recipe.yaml`.
        run: A run: an id, the start of one, `latest` or `latest~N`.
        release: A release: `NAME@VERSION`, or the version where one name alone has it.
        format: Of a table `polars`, `datasets` or `torch` (a dataset whose rows hold tensors); of
            a policy `torch` (the module, on the CPU); of a report `json`; of all `path`.
        columns: Those of a table to read; None reads all.
        where: An SQL expression that rows of a table fulfill, such as `step = 40 and reward < 1`.

    Returns:
        The artifact in that format; tables of an older posttrain have the columns of today.

    Raises:
        UserError: There is no such stage, output, run or release, the bytes are not here, or the
            format does not fit.

    """
    if run is not None and release is not None:
        raise UserError("run and release exclude each other; give one of them")
    if run is None and release is None:
        found = _in_place(name, Path(recipe))
    else:
        with open_project(recipe) as opened:
            found = _of_run(opened, name, run) if run else _of_release(opened, name, str(release))
    return _read(found, format, columns, where)


def _in_place(name: str, file: Path) -> Artifact:
    """The artifact as it lies in the workspace."""
    recipe = load_recipe(file)
    workspace = Workspace.of(recipe)
    dag = recipe.resolve(workspace.root)
    stage, output = _split(name)
    if stage not in dag.stages:
        hint = nearest(stage, dag.stages) or f"; there are {', '.join(dag.stages)}"
        raise UserError(f"there is no stage '{stage}'{hint}")
    reference = dag.stages[stage][output]
    path = workspace.output(str(dag.stages[stage].outputs()[output]))
    if not path.exists():
        raise UserError(f"{name} is not there yet; make it, or fetch it: posttrain run")
    return Artifact(name, reference.type, path)


def _of_run(opened: OpenProject, name: str, called: str) -> Artifact:
    run = find_run(opened.ledger, called)
    stage, output = _split(name)
    records = {each.stage: each for each in opened.ledger.stage_runs(run.id) if each.outputs}
    if stage not in records:
        raise UserError(f"run {run.id} made nothing in a stage '{stage}'{nearest(stage, records)}")
    made = {record.role: record for record in records[stage].outputs}
    if output not in made:
        raise UserError(f"stage '{stage}' has no output '{output}'{nearest(output, made)}")
    return _found(opened.root, name, made[output])


def _of_release(opened: OpenProject, name: str, called: str) -> Artifact:
    from posttrain.publishing.release.contents import FolderContents
    from posttrain.publishing.release.registered import find_release, release_folder
    from posttrain.publishing.release.verify import said_about

    tag = find_release(opened.root, str(_tag(opened.root, called)))
    folder = release_folder(opened.root, tag)
    contents = FolderContents(folder)
    _split(name)
    records = {
        f"{each['producer']}.{each['role']}": each
        for each in contents.evidence("data")["artifacts"]
        if each["producer"]
    }
    if name not in records:
        raise UserError(f"release {tag} has no '{name}'{nearest(name, records)}")
    record = records[name]
    if record["digest"] == said_about(contents)["policy"]["sha256"]:
        return Artifact(name, kind_named(record["type"]), folder)
    return _found(opened.root, name, ArtifactRecord(**record))


def _tag(root: Path, called: str) -> Tag:
    """The release of a name and version, or of the one name that has the version."""
    from posttrain.publishing.release.tags import release_tags

    if "@" in called:
        return parse_tag(called)
    version = parse_version(called)
    fitting = [tag for tag in release_tags(root) if tag.version == version]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise UserError(f"there is no release {version}; see posttrain release list")
    names = ", ".join(sorted(map(str, fitting)))
    raise UserError(f"'{called}' fits several releases: {names}; give the name, too")


def _found(root: Path, name: str, record: ArtifactRecord) -> Artifact:
    finder = Finder(root)
    path = finder.find(record.path, record.digest, record.md5)
    finder.remember()
    if path is None:
        raise UserError(
            f"the bytes of {name} ({record.digest[:12]}) are neither in the workspace nor in the"
            " DVC cache; check out the commit that has them, and: posttrain pull"
        )
    return Artifact(name, kind_named(record.type), path)


def _split(name: str) -> tuple[str, str]:
    stage, dot, output = name.partition(".")
    if not dot:
        raise UserError(f"'{name}' names no output; write it as STAGE.OUTPUT, such as rl.rollouts")
    return stage, output


def _read(found: Artifact, form: str, columns: Sequence[str] | None, where: str | None) -> Any:
    if form == "path":
        return found.path
    is_table = found.kind.shape == "table"
    if is_table and form in _OF_TABLES:
        return _OF_TABLES[form](_frame(found, columns, where))
    if not is_table and (columns is not None or where is not None):
        raise UserError(f"{found.name} is no table; leave out columns and where")
    # A report is whatever is JSON, whichever kind; models are of several classes.
    kind = found.kind if found.kind.shape != "report" else ArtifactKind.REPORT
    if (kind, form) in _OF_OTHERS:
        return _OF_OTHERS[kind, form](found.path)
    fitting = [*_OF_TABLES] if is_table else [f for of, f in _OF_OTHERS if of == kind]
    raise UserError(
        f"{found.name} is a {found.kind.replace('_', ' ')} and cannot be read as '{form}'; give"
        f" format={' or '.join(map(repr, [*fitting, 'path']))}"
    )


def _frame(found: Artifact, columns: Sequence[str] | None, where: str | None) -> "pl.DataFrame":
    import polars as pl

    from posttrain.data.schemas import SCHEMAS
    from posttrain.data.tables import read_table
    from posttrain.provenance.lineage.tables import Table, collected, row_expression

    frame = (
        read_table(found.path, SCHEMAS[found.kind])
        if found.kind in SCHEMAS
        else pl.read_parquet(found.path)
    )
    table = Table(found.name, found.name, found.path)
    rows = frame.lazy()
    if where is not None:
        rows = rows.filter(row_expression(where, table))
    return collected(rows if columns is None else rows.select(columns), table)


def _as_dataset(frame: "pl.DataFrame") -> "datasets.Dataset":
    import datasets

    return datasets.Dataset.from_polars(frame)


def _as_tensors(frame: "pl.DataFrame") -> Any:
    return _as_dataset(frame).with_format("torch")


def _as_model(path: Path) -> Any:
    from posttrain.learning.models.load import load_policy

    return load_policy(path).model


def _as_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _itself(frame: "pl.DataFrame") -> "pl.DataFrame":
    return frame


_OF_TABLES: Mapping[str, Callable[["pl.DataFrame"], Any]] = {
    "polars": _itself,
    "datasets": _as_dataset,
    "torch": _as_tensors,
}
_OF_OTHERS: Mapping[tuple[str, str], Callable[[Path], Any]] = {
    (ArtifactKind.CHECKPOINT, "torch"): _as_model,
    (ArtifactKind.REPORT, "json"): _as_json,
}
