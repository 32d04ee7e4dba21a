"""The table on the terminal at the end of a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from posttrain.stage.formatting import duration, number
from posttrain.views.report.evaluation import PolicyRow, evaluations, policy_rows
from posttrain.views.report.facts import StageFacts


def summary_table(stages: Sequence[StageFacts], artifacts: Mapping[str, Path]) -> Table:
    """What each policy can do, of the last evaluation; what each stage did, where there is none."""
    try:
        evaluated = evaluations(stages, artifacts)
        if evaluated:
            name, report = evaluated[-1]
            return _policies(f"{name}: {report['num_problems']} problems", policy_rows(report))
    except (KeyError, TypeError, ValueError, IndexError, OSError):
        pass
    return _stages(stages)


def _policies(title: str, rows: Sequence[PolicyRow]) -> Table:
    last = rows[-1]
    columns = ["policy", "pass@1 [95%]"]
    columns += [f"pass@{last.k}"] if last.pass_at_k else []
    columns += [f"maj@{last.k}"] if last.majority else []
    columns += [f"best@{last.best_of_k}"] if last.best_of else []
    columns += ["tokens", "gain", "won", "lost"]
    table = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row, last))
    return table


def _cells(row: PolicyRow, last: PolicyRow) -> list[str]:
    cells = [row.name, str(row.pass_at_1)]
    for share, wanted in (
        (row.pass_at_k, last.pass_at_k),
        (row.majority, last.majority),
        (row.best_of, last.best_of),
    ):
        if wanted:
            cells.append(f"{100 * share.value:.1f}%" if share else "")
    cells.append(number(round(row.mean_length, 1)) if row.mean_length is not None else "")
    if row.gain is None:
        return [*cells, "", "", ""]
    gain = f"{100 * row.gain.value:+.1f}"
    return [*cells, gain, f"+{row.newly_solved}", f"-{row.newly_lost}"]


def _stages(stages: Sequence[StageFacts]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("stage", "status", "took", "made"):
        table.add_column(column)
    for stage in stages:
        made = ", ".join(output.role for output in stage.record.outputs)
        table.add_row(stage.name, stage.record.status, duration(stage.seconds), made)
    return table
