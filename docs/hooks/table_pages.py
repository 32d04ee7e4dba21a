"""The page of tables: the columns of every kind of table, with the comments beside them."""

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl

from docs.hooks.words import cell, code, table
from posttrain.data import schemas
from posttrain.stage.artifact_kinds import ARTIFACT_KINDS, ArtifactKind

_OF_EVERY_ROW = {
    "id": "names the row by its content",
    "parents": "ids of the rows that it was made from",
}


def tables_page(root: Path) -> str:
    """Write the columns of every table, of those of a single task too.

    Args:
        root: The repository.

    Returns:
        Markdown.

    """
    comments = comments_of_columns(Path(schemas.__file__).read_text(encoding="utf-8"))
    kinds = {str(kind): kind for kind in (*ARTIFACT_KINDS.values(), *_of_tasks(root))}
    parts = [
        _of_table(name, schema, comments.get(name.upper(), {}))
        for name, schema in _schemas(kinds).items()
    ]
    return (
        "# Tables and artifacts\n\nEvery table is a parquet file. An `id` is 16 hexadecimal"
        " characters of the SHA-256 of what makes the row itself, `parents` the ids of the rows"
        " that it was made from: [lineage](../lineage.md) follows them.\n\n## Kinds of artifacts"
        f"\n\n{_of_kinds(kinds)}\n" + "\n".join(parts)
    )


def _of_kinds(kinds: Mapping[str, ArtifactKind]) -> str:
    shapes = {"table": "parquet", "model": "folder with weights and tokenizer"}
    rows = [
        (code(name), shapes.get(kind.shape, kind.shape), code(kind.suffix))
        for name, kind in kinds.items()
        if not kind.is_inside
    ]
    return table(("kind", "what it is", "suffix"), rows)


def _of_tasks(root: Path) -> Iterator[ArtifactKind]:
    for folder in sorted((root / "tasks").glob("*/config.py")):
        ports = import_module(f"tasks.{folder.parent.name}").TASK.outputs.values()
        yield from (port.type for port in ports)


def _schemas(kinds: Mapping[str, ArtifactKind]) -> dict[str, pl.Schema]:
    own = {name: kind.schema() for name, kind in kinds.items() if kind.schema}
    return schemas.SCHEMAS | own


def _of_table(name: str, schema: pl.Schema, comments: Mapping[str, str]) -> str:
    nulls = schemas.NULLABLE.get(name, frozenset())
    identity = schemas.IDENTITY.get(name, ())
    rows = [
        (
            code(column),
            cell(_type(kind)),
            _marks(column in nulls, column in identity),
            cell(comments.get(column, _OF_EVERY_ROW.get(column, ""))),
        )
        for column, kind in schema.items()
    ]
    return f"## {name}\n\n{table(('column', 'type', '', 'what it holds'), rows)}"


def _marks(may_be_null: bool, names_the_row: bool) -> str:
    marks = {"null: not judged": may_be_null, "in the id": names_the_row}
    return ", ".join(mark for mark, holds in marks.items() if holds)


def _type(kind: Any) -> str:
    if isinstance(kind, pl.List):
        return f"list of {_type(kind.inner)}"
    if isinstance(kind, pl.Struct):
        return f"({', '.join(f'{each.name}: {_type(each.dtype)}' for each in kind.fields)})"
    return str(kind)


def comments_of_columns(source: str) -> dict[str, dict[str, str]]:
    """Read the comments behind the columns of the schemas in a module.

    Args:
        source: Its text.

    Returns:
        Comment by column, by the name of the schema's variable.

    """
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Call(args=[ast.Dict(keys=keys)])
            ):
                said = found.setdefault(name, {})
                for key in keys:
                    if isinstance(key, ast.Constant) and key.lineno in comments:
                        said[key.value] = comments[key.lineno]
    return found
