"""`posttrain rows`: look at rows of a table, and follow them to where they came from."""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli.ledger import existing_ledger, ledger_option, workspace_root
from posttrain.cli.options import Documented
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import counted

if TYPE_CHECKING:
    import polars as pl

    from posttrain.operations.row_origins import OriginLine
    from posttrain.provenance.lineage.graph import Node
    from posttrain.provenance.lineage.names import Selected
    from posttrain.provenance.lineage.rows import Mode, Trace
    from posttrain.provenance.lineage.tables import Table, Tables

_LONGEST_VALUE = 60
_LONGEST_LINE = 2000
_WIDE = 200
# Columns of the terminal that a column of the table needs to be read.
_NARROWEST = 20


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    table: str
    where: str | None
    mode: "Mode | None"
    origins: Sequence[str]
    head: int
    turns: bool
    as_json: bool
    out: Path | None
    layout: str
    ledger_at: str | None


_LAYOUTS = ("table", "hub", "sts")


@click.command(cls=Documented)
@click.argument("table")
@click.option("--where", metavar="SQL", help="Only rows for which this SQL expression holds.")
@click.option(
    "--trace",
    "mode",
    is_flag=False,
    flag_value="up",
    type=click.Choice(["up", "down", "family"]),
    help="Follow the rows to their ancestors (up, the default), to what was made from them (down), "
    "or to all rows made from the same ancestors (family).",
)
@click.option(
    "--from",
    "origins",
    multiple=True,
    metavar="TABLE: SQL",
    help="With --trace: only rows with an ancestor in TABLE (a path or a stage) that fits.",
)
@click.option(
    "--head", type=click.IntRange(min=0), default=5, show_default=True, help="Rows to print."
)
@click.option(
    "--turns",
    is_flag=True,
    help="Of rollouts, traces and completions: print each turn by turn, what was read and said.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines instead of tables.")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="Write the rows, or with --trace the reached ids of every table, as parquet.",
)
@click.option(
    "--as",
    "layout",
    type=click.Choice(_LAYOUTS),
    default="table",
    show_default=True,
    help="With -o: as the table has them; as a data set for others (hub: nulls for what is absent,"
    " JSON as structs); or each rollout or answer as a session trace (sts: -o is a folder).",
)
@ledger_option
def rows(**options: Any) -> None:
    """Show the rows of TABLE (a path or a digest), and with --trace where they came from.

    The way up ends at the lines of files that somebody brought, as they stand there.

    Above them stands the stage that made them, with as many of its parameters as fit on the line;
    `posttrain lineage up TABLE --format json` has all.

    Examples:
      posttrain rows data/synthesize/problems.parquet --where "difficulty >= 2"
      posttrain rows data/balance/traces.parquet --where "source = 'chain_sum'" --trace
      posttrain rows data/evaluate/completions.parquet --where "score < 1" --trace family
      posttrain rows data/balance/traces.parquet --trace --from "synthesize: difficulty = 2"
      posttrain rows data/rl/rollouts.parquet --where "step = 40 and reward < 1" --turns
      posttrain rows data/evaluate/completions.parquet --where "score < 1" --turns
      posttrain rows data/import_chats/traces.parquet --trace     to the lines of your own file
      posttrain rows data/rl/rollouts.parquet --as hub -o rollouts.parquet
      posttrain rows data/rl/rollouts.parquet --where "step = 40" --as sts -o sessions

    """
    request = Request(**options)
    if request.turns and (request.mode or request.as_json):
        raise UserError("--turns is for reading: leave out --trace and --json")
    if request.origins and request.mode is None:
        raise UserError("--from needs --trace: it looks at the rows' ancestors")
    if request.layout != "table" and (request.out is None or request.mode):
        raise UserError(f"--as {request.layout} says how rows are written: give -o, not --trace")
    root = workspace_root(request.ledger_at)
    with existing_ledger(request.ledger_at) as ledger:
        from posttrain.provenance.lineage.names import find_node
        from posttrain.provenance.lineage.tables import open_tables

        node = find_node(ledger, request.table, root=root, cwd=Path.cwd())
        tables = open_tables(ledger, root)
        asked = Path.cwd() / request.table
        named = asked.relative_to(root).as_posix() if asked.is_relative_to(root) else ""
        try:
            _answer(request, tables, node, named)
        finally:
            tables.finder.remember()


def _answer(request: Request, tables: "Tables", node: "Selected", named: str) -> None:
    from posttrain.provenance.lineage.rows import came_from, trace

    # Of several places with the same bytes, the one that was asked for.
    table = tables.of_node(node, called=named)
    chosen = table.numbers(request.where)
    if request.mode is None:
        _deliver(request, table, chosen, None, ())
        return
    for given in request.origins:
        origin, separator, predicate = (part.strip() for part in given.partition(":"))
        if not separator or not predicate:
            raise UserError(f"--from '{given}': write it as 'TABLE: SQL expression'")
        steps = trace(tables, node, chosen).steps
        chosen = came_from(steps, table, chosen, origin=origin, predicate=predicate)
    found = trace(tables, node, chosen, mode=request.mode)
    ends = _ends(request, tables, node, table.take(chosen.head(request.head)).collect(), found)
    _deliver(request, table, chosen, found, ends)


def _ends(
    request: Request, tables: "Tables", node: "Selected", head: "pl.DataFrame", found: "Trace"
) -> "Sequence[OriginLine]":
    """The lines of files at which the way of some rows ends; of the way down, there are none."""
    if request.mode == "down":
        return ()
    from posttrain.operations.row_origins import ends_of_trace

    return ends_of_trace(tables, node, head, found, most=request.head)


def _deliver(
    request: Request,
    table: "Table",
    chosen: "pl.Series",
    found: "Trace | None",
    ends: "Sequence[OriginLine]",
) -> None:
    if request.out is not None:
        frame = table.take(chosen).collect() if found is None else _long(found)
        _write_rows(frame, request.out, layout=request.layout, table=Path(request.table))
    head = table.take(chosen.head(request.head)).collect()
    if request.as_json:
        whole = _as_object(table, chosen, found, request.head)
        lines = [{"row": end.where, "text": end.text, "remark": end.remark} for end in ends]
        click.echo(json.dumps(whole | ({"origins": lines} if found else {}), default=str))
        return
    width = shutil.get_terminal_size().columns
    click.echo(_heading(chosen.len(), table.path, table.maker, width))
    if request.turns:
        from posttrain.cli.row_turns import print_turns

        print_turns(head, Path(request.table))
        return
    _print_rows(head)
    for step in found.steps if found else ():
        heading = _heading(step.numbers.len(), step.table.path, step.table.maker, width)
        click.echo(f"\n{heading}")
        _print_rows(step.sample(request.head))
    for end in ends:
        click.echo(f"\n{end.where}{f' ({end.remark})' if end.remark else ''}")
        if end.text:
            click.echo(f"  {_cut(end.text)}")
    for path in found.gone if found else ():
        click.echo(f"\n{path}: its bytes are gone, so rows were not followed through it", err=True)


def _heading(num_rows: int, path: str, maker: "Node | None", width: int) -> str:
    """How many rows of which table, the stage that made it, and its parameters on one line.

    Of these as many are named as fit in `width` columns; the lineage shows all, and each whole.
    """
    line = f"{counted(num_rows, 'row')} of {path}"
    if maker is None:
        return line
    params = [
        f"{name.removeprefix('param ')}={_shortened(str(value))}"
        for name, value in maker.facts.items()
        if name.startswith("param ")
    ]
    return _fitted(f"{line}, made by {maker.title}", params, width)


def _fitted(line: str, params: Sequence[str], width: int) -> str:
    for count in range(len(params), -1, -1):
        left = len(params) - count
        words = [*params[:count], *([f"{left} more"] if left else [])]
        fitted = f"{line} with {', '.join(words)}" if words else line
        if len(fitted) <= width:
            return fitted
    return line


def _shortened(value: str) -> str:
    """Cut a parameter such as a list of sources, which would leave no room for others."""
    return value if len(value) <= _LONGEST_VALUE else f"{value[: _LONGEST_VALUE - 3]}..."


def _cut(line: str) -> str:
    """A line of a file as it stands there, but for the end of one that fills a screen."""
    left = len(line) - _LONGEST_LINE
    return line if left <= 0 else f"{line[:_LONGEST_LINE]} ... {left:,} more characters"


def _print_rows(frame: "pl.DataFrame") -> None:
    import polars as pl

    if not frame.height:
        return
    if _width() < _NARROWEST * frame.width:
        _print_each(frame)
        return
    with pl.Config(
        tbl_rows=frame.height,
        tbl_cols=-1,
        tbl_width_chars=_width(),
        fmt_str_lengths=40,
        tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True,
    ):
        click.echo(str(frame))


def _print_each(frame: "pl.DataFrame") -> None:
    """Print each row as lines of its own, where its columns would be too narrow to read."""
    indent = max(map(len, frame.columns))
    for number, row in enumerate(frame.iter_rows(named=True)):
        if number:
            click.echo()
        for name, value in row.items():
            shown = repr(value) if isinstance(value, str) else value
            click.echo(f"{name:<{indent}}  {shown}"[: _width()])


def _width() -> int:
    """Columns of the terminal; a pipe takes more."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDE


def _as_object(
    table: "Table", chosen: "pl.Series", found: "Trace | None", head: int
) -> dict[str, object]:
    body = _table_object(table, chosen, head)
    if found is None:
        return body
    steps = [_table_object(each.table, each.numbers, head) for each in found.steps]
    return body | {"trace": steps, "gone": list(found.gone)}


def _table_object(table: "Table", numbers: "pl.Series", head: int) -> dict[str, object]:
    shown = table.take(numbers.head(head)).collect().to_dicts()
    maker = table.maker.title if table.maker else None
    return {"table": table.path, "made_by": maker, "rows": numbers.len(), "head": shown}


def _long(found: "Trace") -> "pl.DataFrame":
    """One line per reached row: its table and its id, in the order of the tables."""
    import polars as pl

    empty = pl.DataFrame(schema={"table": pl.String, "id": pl.String})
    frames = [
        each.table.take(each.numbers).select(pl.lit(each.table.path).alias("table"), "id").collect()
        for each in found.steps
    ]
    return pl.concat([empty, *frames])


def _write_rows(frame: "pl.DataFrame", out: Path, *, layout: str, table: Path) -> None:
    """Write rows, and say how many.

    Args:
        frame: The rows.
        out: A file; with `sts` a folder, which gets a file a session.
        layout: One of `_LAYOUTS`.
        table: Where the rows were asked for: the policy beside it has the tokenizer.

    Raises:
        UserError: The rows are no sessions, or `out` is a folder where it must be a file.

    """
    from posttrain.cli.files import replacing

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
    from posttrain.cli.files import write_text
    from posttrain.cli.row_turns import decode_beside
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
