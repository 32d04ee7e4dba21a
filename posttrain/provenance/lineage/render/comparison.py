"""Two runs side by side, as a table for the terminal or as JSON types."""

from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from posttrain.provenance.ledger import Run, StageRun
from posttrain.provenance.lineage.compare import StageComparison, ValueChange


def as_table(old: Run, new: Run, compared: Sequence[StageComparison]) -> Table:
    """Per stage its outcome, the first cause, and every artifact and number that changed."""
    table = Table(box=None, pad_edge=False)
    for heading in ("stage", "what", f"run {old.id}", f"run {new.id}"):
        table.add_column(heading, overflow="fold")
    for each in compared:
        statuses = _status(each.before), _status(each.after)
        table.add_row(f"[bold]{escape(each.stage)}[/]", "status", *statuses)
        if each.cause:
            table.add_row("", "cause", escape(each.cause), "")
        for change in (*each.outputs, *each.metrics):
            table.add_row("", escape(change.name), _shown(change.before), _shown(change.after))
    return table


def _status(run: StageRun | None) -> str:
    if run is None:
        return "[dim]not in this run[/]"
    return f"{run.status}, {run.ended - run.started:.1f} s"


def _shown(value: float | str | None) -> str:
    if value is None:
        return "[dim]none[/]"
    return f"{value:.6g}" if isinstance(value, float) else escape(str(value))


def as_object(each: StageComparison) -> dict[str, Any]:
    """One stage in JSON types."""

    def changes(found: Sequence[ValueChange]) -> dict[str, Any]:
        return {change.name: {"before": change.before, "after": change.after} for change in found}

    return {
        "stage": each.stage,
        "same": each.same,
        "before": None if each.before is None else each.before.id,
        "after": None if each.after is None else each.after.id,
        "cause": each.cause,
        "outputs": changes(each.outputs),
        "metrics": changes(each.metrics),
    }
