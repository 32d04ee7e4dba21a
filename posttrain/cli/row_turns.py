"""Rollouts turn by turn, for `posttrain rows --turns`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.stage.errors import UserError
from posttrain.stage.escapes import printable
from posttrain.stage.formatting import counted

if TYPE_CHECKING:
    import polars as pl

    from posttrain.views.report.episodes import Decode, PlayedSpan

_WIDTH = 18
_NEEDED = ("role", "token_ids", "spans", "turns", "advantages", "trained", "reward", "end", "step")


def print_turns(rows: "pl.DataFrame", table: Path) -> None:
    """Print what was read and drawn in each turn of some rollouts, as text where that is known.

    Args:
        rows: Of a ROLLOUTS table.
        table: Where it was asked for: the policy beside it has the tokenizer.

    Raises:
        UserError: It is another table.

    """
    if missing := [name for name in _NEEDED if name not in rows.columns]:
        raise UserError(
            f"{table} is no table of rollouts: it has no column {missing[0]}; leave --turns out"
        )
    decode = _decode_beside(table)
    for number, row in enumerate(rows.iter_rows(named=True)):
        click.echo(f"\n{_title(row)}" if number else _title(row))
        for line in _lines(row, decode):
            click.echo(line)


def _title(row: Mapping[str, Any]) -> str:
    reward = "no reward" if row["reward"] is None else f"reward {row['reward']:.3g}"
    learned = "learned from" if row["trained"] else "not learned from"
    return f"{row['id']}: step {row['step']}, {reward}, ended: {row['end']}, {learned}"


def _lines(row: Mapping[str, Any], decode: "Decode") -> Iterator[str]:
    from posttrain.views.report.episodes import spans_of

    for span in spans_of(row, decode):
        who = span.role if span.drawn else f"{span.role} reads"
        first, *others = printable(span.text, kept="\n").split("\n")
        yield f"  {who:<{_WIDTH}}{first}{_remark(span)}"
        yield from (f"  {'':{_WIDTH}}{line}" for line in others)


def _remark(span: "PlayedSpan") -> str:
    told = [counted(span.tokens, "token")]
    told += [f"earned {span.earned:.3g}"] if span.earned else []
    told += [f"advantage {span.advantage:+.2f}"] if span.advantage is not None else []
    told += [f"at {printable(span.key)}"] if span.key else []
    return click.style(f"   ({', '.join(told)})", dim=True)


def _decode_beside(table: Path) -> "Decode":
    """What makes text of tokens: the tokenizer of a checkpoint that lies in the same folder."""
    from posttrain.views.report.episodes import decoder

    for found in sorted(table.parent.glob("*/tokenizer.json")):
        if decode := decoder(found.parent):
            return decode
    click.echo("no policy lies beside the table, so tokens are shown by their numbers", err=True)
    return _numbers


def _numbers(ids: Sequence[int]) -> str:
    return " ".join(map(str, ids))
