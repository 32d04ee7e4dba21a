"""`posttrain.load`: an artifact as polars, datasets, torch, JSON or its path."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from posttrain.operations.python.artifacts import LocatedArtifact, find_artifact
from posttrain.operations.python.project import AnyPath
from posttrain.stage.artifact_kinds import ArtifactKind
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    import datasets
    import polars as pl

Format = Literal["polars", "datasets", "torch", "json", "path"]


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
    found = find_artifact(name, recipe, run=run, release=release)
    return _read(found, format, columns, where)


def _read(
    found: LocatedArtifact, form: str, columns: Sequence[str] | None, where: str | None
) -> Any:
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


def _frame(
    found: LocatedArtifact, columns: Sequence[str] | None, where: str | None
) -> "pl.DataFrame":
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
