"""Read, write and check the parquet tables that stages hand to each other.

The writer is pinned, so one frame has one byte string on every run and thread count; a change of
the polars version may change the bytes, which is why the version is part of every stage's key.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from posttrain.data.migrations import FORMAT_KEY, FORMATS, MIGRATIONS, SCHEMA_KEY
from posttrain.data.schemas import COMPLETIONS, CURVE, DROPPED, NULLABLE, SCHEMAS
from posttrain.stage.artifact_kinds import ArtifactKind
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.files import flush, replacing
from posttrain.stage.hashing import sha256_of

_ROW_GROUP_ROWS = 65_536
_PAGE_BYTES = 1 << 20
_ZSTD_LEVEL = 3
_DISK_FULL = "No space left on device"


def write_table(frame: pl.DataFrame, path: Path, schema: pl.Schema) -> None:
    """Write `frame` as one parquet file with the columns of `schema`, in its order, atomically.

    A table of `schemas.SCHEMAS` says its name and format in the footer.
    DROPPED is a minimum: other columns stay, after the required ones. Raises ValueError on a
    missing column, a wrong type, a column too many or a null, and UserError on a full disk.
    """
    complaint = _mismatch(frame.schema, schema) or _surplus(frame, schema) or _nulls(frame, schema)
    if complaint:
        raise ValueError(f"{path.name}: {complaint}")
    kept = list(schema) + [name for name in frame.columns if name not in schema]
    with replacing(path) as partial:
        _write_parquet(frame.select(kept), partial, kind=_kind(schema))


def read_table(
    path: Path, schema: pl.Schema, *, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    """Read a table, also one of an older format, as one of today's.

    Args:
        path: A parquet file.
        schema: One of `schemas.SCHEMAS`.
        columns: Those to read; all that the schema has if None, and all of a DROPPED table.

    Raises:
        UserError: The file is missing, is not parquet, or lacks a column of `schema`; or a newer
            posttrain wrote it.

    """
    found, version = _checked(path, schema)
    wanted = list(columns if columns is not None else _all_columns(found, schema))
    kind = _kind(schema)
    if version == FORMATS.get(kind, 1):
        return pl.read_parquet(path, columns=wanted)
    frame = pl.read_parquet(path)
    for number in range(version, FORMATS[kind]):
        frame = MIGRATIONS[kind, number].migrate(frame)
    return frame.select(wanted)


def schema_of(kind: ArtifactKind) -> pl.Schema:
    """Return the schema of a table's kind.

    Raises:
        UserError: It is no kind that ships, and states none.

    """
    if kind in SCHEMAS:
        return SCHEMAS[kind]
    if kind.schema is None:
        raise UserError(
            f"artifacts of the kind '{kind}' are tables without a schema; give the kind one:"
            " ArtifactKind(..., schema=...)"
        )
    schema: pl.Schema = kind.schema()
    return schema


def check_table(path: Path, schema: pl.Schema) -> int:
    """Return the number of rows, or raise UserError if the file is not a table of this schema.

    Reads metadata only. A table without rows is refused, unless it lists dropped rows or solutions,
    or is a curve.
    """
    _checked(path, schema)
    rows = int(pl.scan_parquet(path).select(pl.len()).collect().item())
    if rows == 0 and schema not in (DROPPED, CURVE, COMPLETIONS):
        raise UserError(f"{path}: the table has no rows; look at what the stage dropped, and why")
    return rows


def rows_digest(path: Path) -> str:
    """Compute the digest of a table's rows, whatever else its footer says of them.

    It is that of the file that a posttrain of before footers named schemas wrote, so that rows that
    were noted then are compared with those of today.

    Args:
        path: A table that a stage wrote, of today's format.

    Returns:
        SHA-256 in hexadecimal digits.

    """
    version, written = _format_of(path), io.BytesIO()
    pl.read_parquet(path).write_parquet(
        written,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        statistics=True,
        row_group_size=_ROW_GROUP_ROWS,
        data_page_size=_PAGE_BYTES,
        metadata={FORMAT_KEY: str(version)} if version > 1 else None,
    )
    return sha256_of(written.getvalue())


def _checked(path: Path, schema: pl.Schema) -> tuple[pl.Schema, int]:
    """Return the file's columns, which are those of its format, and the number of the format."""
    found, version = _schema_of(path), _format_of(path)
    kind = _kind(schema)
    present = FORMATS.get(kind, 1)
    if version > present:
        raise UserError(
            f"{path}: it is of format {version}, and this posttrain reads tables of {kind} up to"
            f" {present}; install a newer posttrain"
        )
    complaint = _mismatch(found, schema if version == present else MIGRATIONS[kind, version].schema)
    if complaint:
        raise UserError(f"{path}: {complaint}")
    return found, version


def _kind(schema: pl.Schema) -> str:
    """Return the type of table that a schema is of; empty for one that is not ours."""
    return next((name for name, known in SCHEMAS.items() if known == schema), "")


def _write_parquet(frame: pl.DataFrame, path: Path, *, kind: str = "") -> None:
    """Write with every knob pinned, and force the bytes to the disk.

    The footer says which schema the table has, and nothing of who wrote it when: equal rows are
    equal bytes, so that what follows is not run again.
    """
    try:
        frame.write_parquet(
            path,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            statistics=True,
            row_group_size=_ROW_GROUP_ROWS,
            data_page_size=_PAGE_BYTES,
            metadata={SCHEMA_KEY: kind, FORMAT_KEY: str(FORMATS.get(kind, 1))} if kind else None,
        )
        flush(path)
    except (OSError, pl.exceptions.ComputeError) as error:
        if _DISK_FULL in str(error):
            raise UserError(f"no space left in {path.parent}; free some and run again") from None
        raise


def _schema_of(path: Path) -> pl.Schema:
    """Column names and types from the file's footer."""
    try:
        return pl.Schema(pl.read_parquet_schema(path))
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file") from None
    except pl.exceptions.ComputeError:
        raise UserError(f"{path}: this is not a parquet file, or it is cut short") from None


def _format_of(path: Path) -> int:
    return int(pl.read_parquet_metadata(path).get(FORMAT_KEY, "1"))


def _all_columns(found: pl.Schema, schema: pl.Schema) -> list[str]:
    """Columns of the schema, or of the file where the schema is only a minimum."""
    return list(found) if schema == DROPPED else list(schema)


def _mismatch(found: pl.Schema, schema: pl.Schema) -> str:
    """Say which column is missing or mistyped; an empty string if none is."""
    for name, dtype in schema.items():
        if name not in found:
            return f"there is no column '{name}'{nearest(name, found)}"
        if found[name] != dtype:
            return f"column '{name}' holds {found[name]}, but {dtype} is needed"
    return ""


def _surplus(frame: pl.DataFrame, schema: pl.Schema) -> str:
    """Say which column the schema does not have; an empty string if none."""
    extra = [name for name in frame.columns if name not in schema]
    if not extra or schema == DROPPED:
        return ""
    return f"column '{extra[0]}' does not belong to the table{nearest(extra[0], schema)}"


def _nulls(frame: pl.DataFrame, schema: pl.Schema) -> str:
    """Say which column holds nulls and may not; an empty string if none does."""
    counts = frame.drop(NULLABLE.get(_kind(schema), ()), strict=False).null_count()
    held = counts.row(0, named=True) if counts.width else {}
    return next((f"column '{name}' holds {n} nulls" for name, n in held.items() if n), "")


def refuse_nothing_solved(num_rows: int, *, where: str) -> None:
    """Refuse a table of solutions without one.

    Args:
        num_rows: Of the table.
        where: Name of the stage.

    Raises:
        UserError: There is no row.

    """
    if not num_rows:
        raise UserError(
            f"{where}: no problem has a worked solution, so there is nothing to train on; map a"
            " column to solution in a source's columns, add a source with solutions, choose a"
            " synthesize.teacher that solves these, or leave the stage out and let RL learn alone"
        )
