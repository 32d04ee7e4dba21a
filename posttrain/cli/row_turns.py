"""Rollouts, traces and completions turn by turn, for `posttrain rows --turns`."""

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
_MESSAGES = ("prompt", "text", "context")
"""The columns of a table of completions whose rows are shown as messages."""
_NEEDED = ("role", "token_ids", "spans", "turns", "advantages", "trained", "reward", "end", "step")


def print_turns(rows: "pl.DataFrame", table: Path) -> None:
    """Print what was read and said in each turn of some rows.

    Of rollouts that is what was drawn, as text where the tokenizer is known, and of completions,
    such as a script's traces and what an evaluation drew, the messages of the row.

    Args:
        rows: Of a ROLLOUTS table, or of one of COMPLETIONS.
        table: Where it was asked for: the policy beside it has the tokenizer.

    Raises:
        UserError: It is another table.

    """
    if "spans" not in rows.columns and all(name in rows.columns for name in _MESSAGES):
        _print_messages(rows)
        return
    if missing := [name for name in _NEEDED if name not in rows.columns]:
        raise UserError(
            f"{table} is no table of rollouts or completions: it has no column {missing[0]}; leave"
            " --turns out"
        )
    decode = decode_beside(table)
    for number, row in enumerate(rows.iter_rows(named=True)):
        click.echo(f"\n{_title(row)}" if number else _title(row))
        for line in _lines(row, decode):
            click.echo(line)


def _print_messages(rows: "pl.DataFrame") -> None:
    from posttrain.data.contexts import PromptContext

    for number, row in enumerate(rows.iter_rows(named=True)):
        score = "" if row.get("score") is None else f": score {row['score']:.3g}"
        reason = f", {row['reason']}" if row.get("reason") else ""
        click.echo(f"{chr(10) if number else ''}{row['id']}{score}{reason}")
        asked = PromptContext.read(row["context"]).messages(row["prompt"])
        for message in (*asked, {"role": "assistant", "content": row["text"]}):
            first, *others = printable(message["content"], kept="\n").split("\n")
            click.echo(f"  {message['role']:<{_WIDTH}}{first}".rstrip())
            for line in others:
                click.echo(f"  {'':{_WIDTH}}{line}")


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


def decode_beside(table: Path) -> "Decode":
    """Find what makes text of tokens: the tokenizer of a checkpoint in the folder of a table.

    Args:
        table: Where it was asked for.

    Returns:
        A decoder; without a tokenizer one that shows numbers, and says so.

    """
    from posttrain.views.report.episodes import decoder

    for found in sorted(table.parent.glob("*/tokenizer.json")):
        if decode := decoder(found.parent):
            return decode
    click.echo("no policy lies beside the table, so tokens are shown by their numbers", err=True)
    return _numbers


def _numbers(ids: Sequence[int]) -> str:
    return " ".join(map(str, ids))
