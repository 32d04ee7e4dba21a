"""`posttrain logs`: what stages print, as it comes or once they are over."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.cli.ledger import existing_ledger, ledger_option, workspace_root
from posttrain.cli.options import Documented
from posttrain.stage.errors import UserError, nearest

if TYPE_CHECKING:
    from posttrain.pipeline.execution.log_tail import LogTail
    from posttrain.provenance.ledger import Ledger, Run

_POLL_SECONDS = 0.3
_WIDTH = 12
"""Of the column of stages: which of them there will be is not known at first."""


@click.command(cls=Documented)
@click.argument("stage", required=False)
@click.option("--run", "run_name", default="latest", show_default=True, help="Whose logs.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is printed until the run ends.")
@click.option("-n", "--lines", type=click.IntRange(min=0), help="The last lines alone.")
@ledger_option
def logs(
    stage: str | None, run_name: str, follow: bool, lines: int | None, ledger_at: str | None
) -> None:
    """Print the log of STAGE in the last run, or in another.

    Without STAGE it is that of the stage that failed, else of the one that printed last; with
    --follow those of all stages, each line with its stage in front. Of a stage that was reused it
    is the log of the run that executed it.

    Examples:
      posttrain logs                       of the stage that failed, or printed last
      posttrain logs rl -n 20              the end of one stage's
      posttrain logs --follow              all that a run prints, in another terminal
      posttrain logs rl --run latest~1

    """
    from posttrain.provenance.lineage.names import find_run

    root = workspace_root(ledger_at)
    with existing_ledger(ledger_at) as ledger:
        run = find_run(ledger, run_name)
        found = _logs_of(ledger, run, root)
        if follow:
            _follow(ledger, run, root, stage, lines)
            return
        chosen = _chosen(ledger, run, found, stage)
        click.echo(f"{chosen} of run {run.id}: {found[chosen]}", err=True)
        text = found[chosen].read_text(encoding="utf-8", errors="replace")
    click.echo("".join(_last(text.splitlines(keepends=True), lines)), nl=False)


def _logs_of(ledger: "Ledger", run: "Run", root: Path) -> dict[str, Path]:
    """The log of each stage that has one, by stage; those of stages that run among them."""
    found = {
        record.stage: root / record.log_path
        for record in ledger.stage_runs(run.id)
        if record.log_path
    }
    folder = root / ".posttrain" / "runs" / run.id
    found |= {path.stem: path for path in folder.glob("*.log") if "." not in path.stem}
    return {stage: path for stage, path in found.items() if path.is_file()}


def _chosen(ledger: "Ledger", run: "Run", found: Mapping[str, Path], stage: str | None) -> str:
    if stage is not None and stage not in found:
        hint = nearest(stage, found) or f"; there are {', '.join(found) or 'none'}"
        raise UserError(f"run {run.id} has no log of a stage '{stage}' here{hint}")
    if not found:
        raise UserError(
            f"run {run.id} has no logs here: they lie where it ran, on {_host(ledger, run)}"
        )
    failed = [each.stage for each in ledger.stage_runs(run.id) if each.status == "failed"]
    if stage is None and failed and failed[-1] in found:
        return failed[-1]
    return stage or max(found, key=lambda name: found[name].stat().st_mtime)


def _host(ledger: "Ledger", run: "Run") -> str:
    hosts = {each.host for each in ledger.stage_runs(run.id) if each.host}
    return ", ".join(sorted(hosts)) or "another machine"


@dataclass
class _Followed:
    """The logs of a run."""

    only: str | None
    tails: "dict[str, LogTail]" = field(default_factory=dict)

    def say(self, found: Mapping[str, Path], most: int | None = None) -> None:
        """Print what came since; of what was there before, `most` lines of each."""
        from posttrain.pipeline.execution.log_tail import LogTail

        width = max(_WIDTH, *map(len, found)) if found else _WIDTH
        for stage, path in found.items():
            if self.only not in (None, stage):
                continue
            tail = self.tails.setdefault(stage, LogTail(path))
            front = "" if self.only else f"{stage:<{width}} | "
            for line in _last([*tail.lines()], most):
                click.echo(front + line)
        sys.stdout.flush()


def _follow(ledger: "Ledger", run: "Run", root: Path, stage: str | None, most: int | None) -> None:
    """Print what stages print until the run is over."""
    followed = _Followed(stage)
    running = True
    while running:
        now = ledger.run(run.id)
        running = now is not None and now.status == "running"
        followed.say(_logs_of(ledger, run, root), most)
        most = None
        if running:
            time.sleep(_POLL_SECONDS)
    status = "gone" if now is None else now.status
    click.echo(f"run {run.id}: {status}", err=True)


def _last(lines: list[str], most: int | None) -> list[str]:
    return lines if most is None else lines[max(0, len(lines) - most) :]
