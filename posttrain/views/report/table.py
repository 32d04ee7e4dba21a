"""The table on the terminal at the end of a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from posttrain.stage.formatting import duration, number
from posttrain.views.report.evaluation import EvaluatedPolicy, Evaluation, evaluations
from posttrain.views.report.facts import StageFacts
from posttrain.views.report.headline import headlines


def summary_table(stages: Sequence[StageFacts], artifacts: Mapping[str, Path]) -> Table:
    """What each policy can do, of the last evaluation; without one, what each stage did
    and measured on held-out rows.
    """
    table = _stages(stages)
    try:
        if evaluated := evaluations(stages, artifacts):
            return _policies(evaluated[-1])
        _write_below(table, headlines(stages, artifacts))
    except (KeyError, TypeError, ValueError, IndexError, OSError):
        pass
    return table


def _policies(report: Evaluation) -> Table:
    last = report.policies[-1]
    columns = ["policy", "pass@1 [95%]"]
    columns += [f"pass@{last.pass_at[-1].k}"] if len(last.pass_at) > 1 else []
    columns += [f"maj@{last.pass_at[-1].k}"] if last.majority else []
    columns += [f"best@{last.best_of[-1].k}"] if last.best_of else []
    columns += ["tokens", "gain", *(["over"] if _crosses(report) else []), "won", "lost"]
    table = Table(
        title=f"{report.stage}: {report.num_problems} problems",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for policy in report.policies:
        table.add_row(*_cells(policy, last, over=_crosses(report)))
    played = [f"{name}: {means}" for name, means in report.episodes.items()]
    _write_below(table, [*played, *report.warnings])
    return table


def _write_below(table: Table, sentences: Sequence[str]) -> None:
    if sentences:
        table.caption = "\n".join(map(escape, sentences))
        table.caption_justify = "left"


def _crosses(report: Evaluation) -> bool:
    """Whether a policy is compared with another one than that of the row above."""
    pairs = zip(report.policies[1:], report.policies, strict=False)
    return any(policy.change and policy.change.parent != above.name for policy, above in pairs)


def _cells(policy: EvaluatedPolicy, last: EvaluatedPolicy, *, over: bool) -> list[str]:
    cells = [policy.name, str(policy.pass_at[0])]
    for shares, wanted in (
        (policy.pass_at[1:], last.pass_at[1:]),
        ((policy.majority,), last.majority),
        (policy.best_of, last.best_of),
    ):
        if wanted:
            share = shares[-1] if shares else None
            cells.append(f"{share.value:.1%}" if share else "")
    cells.append(number(round(policy.mean_length, 1)) if policy.mean_length is not None else "")
    if policy.change is None:
        return [*cells, *[""] * (4 if over else 3)]
    won, lost = len(policy.change.newly_solved), len(policy.change.newly_lost)
    gain = f"{100 * policy.change.difference.value:+.1f}"
    return [*cells, gain, *([policy.change.parent] if over else []), f"+{won}", f"-{lost}"]


def _stages(stages: Sequence[StageFacts]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("stage", "status", "took", "made"):
        table.add_column(column)
    for stage in stages:
        made = ", ".join(output.role for output in stage.record.outputs)
        table.add_row(stage.name, stage.record.status, duration(stage.seconds), made)
    return table
