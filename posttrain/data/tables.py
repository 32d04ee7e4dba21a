"""Read, write and check the parquet tables that stages hand to each other.

The writer is pinned, so one frame has one byte string on every run and thread count; a change of
the polars version may change the bytes, which is why the version is part of every stage's key.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from posttrain.data.schemas import CURVE, DROPPED, NULLABLE, SCHEMAS
from posttrain.stage.errors import UserError, nearest

_ROW_GROUP_ROWS = 65_536
_PAGE_BYTES = 1 << 20
_ZSTD_LEVEL = 3
_DISK_FULL = "No space left on device"


def write_table(frame: pl.DataFrame, path: Path, schema: pl.Schema) -> None:
    """Write `frame` as one parquet file with the columns of `schema`, in its order, atomically.

    DROPPED is a minimum: other columns stay, after the required ones. Raises ValueError on a
    missing column, a wrong type, a column too many or a null, and UserError on a full disk.
    """
    complaint = _mismatch(frame.schema, schema) or _surplus(frame, schema) or _nulls(frame, schema)
    if complaint:
        raise ValueError(f"{path.name}: {complaint}")
    kept = list(schema) + [name for name in frame.columns if name not in schema]
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        _write_parquet(frame.select(kept), partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_table(
    path: Path, schema: pl.Schema, *, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    """Read `columns` (all that the schema has, if None; every column of a DROPPED table).

    Raises UserError where the file is missing, is not parquet, or lacks a column of `schema`.
    """
    found = _schema_of(path)
    complaint = _mismatch(found, schema)
    if complaint:
        raise UserError(f"{path}: {complaint}")
    wanted = columns if columns is not None else _all_columns(found, schema)
    return pl.read_parquet(path, columns=list(wanted))


def check_table(path: Path, schema: pl.Schema) -> int:
    """Return the number of rows, or raise UserError if the file is not a table of this schema.

    Reads metadata only. A table without rows is refused, unless it lists dropped rows or is a
    curve.
    """
    complaint = _mismatch(_schema_of(path), schema)
    if complaint:
        raise UserError(f"{path}: {complaint}")
    rows = int(pl.scan_parquet(path).select(pl.len()).collect().item())
    if rows == 0 and schema not in (DROPPED, CURVE):
        raise UserError(f"{path}: the table has no rows; look at what the stage dropped, and why")
    return rows


def _write_parquet(frame: pl.DataFrame, path: Path) -> None:
    """Write with every knob pinned, and force the bytes to the disk."""
    try:
        frame.write_parquet(
            path,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            statistics=True,
            row_group_size=_ROW_GROUP_ROWS,
            data_page_size=_PAGE_BYTES,
        )
        with path.open("rb+") as written:
            os.fsync(written.fileno())
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
    kind = next((name for name, known in SCHEMAS.items() if known == schema), "")
    counts = frame.drop(NULLABLE.get(kind, ()), strict=False).null_count()
    held = counts.row(0, named=True) if counts.width else {}
    return next((f"column '{name}' holds {n} nulls" for name, n in held.items() if n), "")
