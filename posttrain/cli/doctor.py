"""`posttrain doctor`: what is wrong here, and what to do about it."""

import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.cli.options import Documented
from posttrain.provenance.ledger.location import project_root
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.operations.maintenance.checks.finding import Finding

_COLORS = {"ok": "green", "warning": "yellow", "broken": "red"}
_INDENT = 20


@click.command(cls=Documented)
@click.option("--deep", is_flag=True, help="Hash every object of the cache, and the artifacts.")
@click.option(
    "--fix",
    is_flag=True,
    help="Put damaged objects back from the workspace or remove them; remove dead processes' "
    "locks, half-made outputs and worktrees without a folder. Never while a run is under way.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print the findings.",
)
def doctor(deep: bool, fix: bool, output: str) -> None:
    """Check the installation, the project, its servers, its cache, disk, clock and GPU.

    Every line is ok, warning or broken, and what is not ok says what to do. Nothing is changed
    without --fix. Exit code 1 if something is broken, else 0. Outside of a project only the
    machine is looked at.

    Examples:
      posttrain doctor                one line for each thing that was looked at
      posttrain doctor --deep         hash every object of the cache, and the artifacts
      posttrain doctor --deep --fix   and repair what can be repaired without a loss
      posttrain doctor -o json | jq '.[] | select(.state != "ok")'

    """
    from posttrain.operations.maintenance.checks import examine
    from posttrain.operations.maintenance.checks.finding import CheckScope

    found: list[Finding] = []
    for finding in examine(CheckScope(_root(), deep, fix)):
        found.append(finding)
        if output == "text":
            _show(finding)
    if output == "json":
        click.echo(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        click.echo(_summary(found))
    if any(finding.state == "broken" for finding in found):
        sys.exit(1)


def _show(finding: "Finding") -> None:
    state = click.style(f"{finding.state:8}", fg=_COLORS[finding.state])
    click.echo(f"{state} {finding.check:10} {finding.says}")
    if finding.remedy:
        click.echo(f"{'':{_INDENT}}{click.style('do:', bold=True)} {finding.remedy}")


def _summary(found: "list[Finding]") -> str:
    counts = Counter(finding.state for finding in found)
    if counts["ok"] == len(found):
        return f"All {len(found)} are well."
    warnings = "1 warning" if counts["warning"] == 1 else f"{counts['warning']} warnings"
    return f"{counts['broken'] or 'Nothing'} broken, {warnings}."


def _root() -> Path | None:
    """The project around us; outside of one only the machine is looked at."""
    try:
        return project_root(Path.cwd())
    except UserError:
        return None
