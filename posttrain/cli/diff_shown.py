"""How `posttrain diff` shows a comparison: as tables, as Markdown, as JSON."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli.legends import say_legend
from posttrain.cli.tables import colored, print_table
from posttrain.stage.formatting import counted, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.text import Text

    from posttrain.publishing.release.config import AnyGate
    from posttrain.publishing.release.gates.base import GateResult
    from posttrain.views.report.changes import MetricChange, RunChange

_MOST_FIGURES = 12
"""Rows of figures that a comment shows before the rest is folded."""


def print_change(change: "RunChange", decided: "Sequence[tuple[AnyGate, GateResult]]") -> None:
    """Print a comparison as tables, and the whole in a line below them."""
    click.echo(f"{change.before}  ->  {change.after}\n")
    if change.causes:
        print_table(("stage", "what differs first"), change.causes)
        click.echo()
    if change.metrics:
        rows = [_row(each) for each in change.metrics]
        print_table(("stage", "figure", "before", "after", "difference"), rows)
        click.echo()
    for remark in change.remarks:
        click.echo(f"note: {remark}")
    if decided:
        from posttrain.cli.release_show import show_gates

        show_gates(decided)
        click.echo()
    click.echo(_told_of(change, decided))
    say_legend("difference", *(["gate"] if decided else []))


def _row(each: "MetricChange") -> "tuple[str | Text, ...]":
    colors = {"up": "green", "down": "red"}
    moved = colored(each.moved, colors[each.direction]) if each.direction else each.moved
    return each.stage, each.name, _figure(each.before), _figure(each.after), moved


def _figure(value: float | None) -> str:
    return "" if value is None else number(value)


def _told_of(change: "RunChange", decided: "Sequence[tuple[AnyGate, GateResult]]") -> str:
    """The whole in a line."""
    stages = change.equal + len(change.causes)
    said = f"{len(change.causes)} of {counted(stages, 'stage')} differ"
    if not decided:
        return f"{said}."
    failed = [gate.name for gate, result in decided if not result.passed]
    if not failed:
        return f"{said}; all {len(decided)} gates hold."
    return f"{said}; {len(failed)} of {counted(len(decided), 'gate')} fail: {', '.join(failed)}."


def in_markdown_of(
    change: "RunChange", decided: "Sequence[tuple[AnyGate, GateResult]]" = ()
) -> str:
    """Write a comparison as a comment on a pull request has it.

    Args:
        change: The comparison.
        decided: Gates with what each came to.

    Returns:
        Markdown in which what is quoted stays a quotation.

    """
    from posttrain.publishing.release.card import in_markdown

    lines = [f"**{in_markdown(_told_of(change, decided))}**", ""]
    lines += [f"{in_markdown(change.before)} → {in_markdown(change.after)}", ""]
    if decided:
        lines += [*_table(("gate", "", "figures", "rule"), map(_gate_cells, decided)), ""]
    figures = [
        (each.stage, each.name, _figure(each.before), _figure(each.after), each.moved)
        for each in change.metrics
    ]
    heading = ("stage", "figure", "before", "after", "difference")
    if figures:
        lines += [*_table(heading, figures[:_MOST_FIGURES]), ""]
    if rest := figures[_MOST_FIGURES:]:
        lines += [f"<details><summary>{len(rest)} more figures</summary>", ""]
        lines += [*_table(heading, rest), "", "</details>", ""]
    if change.causes:
        lines += [*_table(("stage", "what differs first"), change.causes), ""]
    for remark in change.remarks:
        lines += [in_markdown(remark), ""]
    lines.append(
        "<sub>Brackets: 95% interval of the difference, paired by problem. A figure without one was"
        " measured once on each side, so chance may have moved it.</sub>"
    )
    return "\n".join(lines) + "\n"


def _gate_cells(decided: "tuple[AnyGate, GateResult]") -> tuple[str, ...]:
    gate, result = decided
    figures = ", ".join(f"{name} {value:.4g}" for name, value in result.figures.items())
    return gate.name, "holds" if result.passed else "FAILS", figures, result.rule


def _table(heading: "Sequence[str]", rows: "Iterable[Sequence[str]]") -> list[str]:
    from posttrain.publishing.release.card import in_markdown

    lines = [heading, ["---"] * len(heading), *([*map(in_markdown, row)] for row in rows)]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def as_object(
    change: "RunChange", decided: "Sequence[tuple[AnyGate, GateResult]]"
) -> dict[str, Any]:
    """The comparison in JSON types."""
    gates = [
        {
            "gate": gate.name,
            "passed": result.passed,
            "rule": result.rule,
            "figures": dict(result.figures),
        }
        for gate, result in decided
    ]
    return {**asdict(change), "gates": gates}
