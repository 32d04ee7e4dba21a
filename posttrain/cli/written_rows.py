"""Rows that `posttrain rows -o` writes: as the table has them, or as other tools expect them."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.cli.files import replacing, write_text
from posttrain.cli.row_turns import decode_beside
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import counted

if TYPE_CHECKING:
    import polars as pl

LAYOUTS = ("table", "hub", "sts")


def write_rows(frame: "pl.DataFrame", out: Path, *, layout: str, table: Path) -> None:
    """Write rows, and say how many.

    Args:
        frame: The rows.
        out: A file; with `sts` a folder, which gets a file a session.
        layout: One of `LAYOUTS`.
        table: Where the rows were asked for: the policy beside it has the tokenizer.

    Raises:
        UserError: The rows are no sessions, or `out` is a folder where it must be a file.

    """
    if layout == "sts":
        _write_sessions(frame, out, table)
        return
    if out.is_dir():
        raise UserError(f"cannot write {out}: it is a folder; name a file, such as rows.parquet")
    with replacing(out) as partial:
        if layout == "hub":
            from posttrain.operations.exported_rows import for_others, write_for_others

            write_for_others(for_others(frame), partial)
        else:
            frame.write_parquet(partial)
    click.echo(f"{frame.height:,} lines written to {out}", err=True)


def _write_sessions(frame: "pl.DataFrame", out: Path, table: Path) -> None:
    from posttrain.operations.exported_rows import sessions

    if not ({"spans", "token_ids"} <= set(frame.columns) or "text" in frame.columns):
        raise UserError(
            f"{table} holds no sessions; --as sts is for tables of rollouts and of completions"
        )
    if out.is_file():
        raise UserError(f"cannot write {out}: it is a file; name a folder, which gets a file each")
    out.mkdir(parents=True, exist_ok=True)
    written = set()
    for name, text in sessions(frame, decode_beside(table) if "spans" in frame.columns else str):
        write_text(out / f"{name}.jsonl", text)
        written.add(name)
    click.echo(f"{counted(len(written), 'session')} written to {out}", err=True)
