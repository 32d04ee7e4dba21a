"""`posttrain ledger` and `posttrain audit`: move the ledger, and find what it says is wrong."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from posttrain.cli.files import replacing
from posttrain.cli.options import Documented, DocumentedGroup
from posttrain.provenance.ledger import (
    Conflict,
    Ledger,
    conflicts,
    explain_conflict,
    open_ledger,
)
from posttrain.provenance.ledger.location import ENVIRONMENT, ledger_location, project_root
from posttrain.stage.errors import UserError

ledger_option = click.option(
    "--ledger",
    "ledger_at",
    metavar="PATH_OR_URL",
    help=f"Ledger to read [default: ${ENVIRONMENT}, or the project's own].",
)


def existing_ledger(at: str | None) -> Ledger:
    """The ledger named on the command line, by the environment, or by the project around us."""
    return open_ledger(_location(at), create=False)


def workspace_root(at: str | None) -> Path:
    """The project around us, or this folder where a ledger is named from outside any project."""
    named = at or os.environ.get(ENVIRONMENT)
    try:
        return project_root(Path.cwd())
    except UserError:
        if not named:
            raise
        return Path.cwd()


def _location(at: str | None) -> str:
    return at or ledger_location(workspace_root(at))


@click.group(cls=DocumentedGroup)
def ledger() -> None:
    """Export the ledger as JSON lines, or import such a file."""


@ledger.command(name="export")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True, dir_okay=False))
@ledger_option
def export(file: Path, ledger_at: str | None) -> None:
    """Write every record to FILE ('-' for standard output).

    Examples:
      posttrain ledger export ledger.jsonl
      posttrain ledger export - | gzip > ledger.jsonl.gz
      posttrain ledger export ledger.jsonl --ledger postgresql://db/posttrain

    """
    from posttrain.provenance.ledger.transfer import export_ledger

    with existing_ledger(ledger_at) as source:
        if str(file) == "-":
            export_ledger(source, sys.stdout)
            return
        with replacing(file) as partial, partial.open("w", encoding="utf-8") as stream:
            count = export_ledger(source, stream)
    click.echo(f"{count:,} records written to {file}", err=True)


@ledger.command(name="import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@ledger_option
def import_(file: Path, ledger_at: str | None) -> None:
    """Append the records of FILE that the ledger does not have yet.

    Examples:
      posttrain ledger import colleague.jsonl      twice does no harm: what is known is left out
      posttrain ledger import ledger.jsonl --ledger postgresql://db/posttrain

    """
    from posttrain.provenance.ledger.transfer import import_ledger

    with open_ledger(_location(ledger_at)) as sink, file.open(encoding="utf-8") as stream:
        count = import_ledger(sink, stream, where=str(file))
    click.echo(f"{count:,} new records", err=True)


@click.command(cls=Documented)
@ledger_option
def audit(ledger_at: str | None) -> None:
    """List stages that made different outputs under one key.

    Either such a stage is not reproducible, or something that no key knows differed.

    Also those of which `posttrain verify` last said so. Exits with 1 when there are any. Results
    that were adopted although something differed, or made with kernels of another processor, are
    listed, too, and are no fault by themselves.

    Examples:
      posttrain audit                              all that this project ever ran
      posttrain audit --ledger other/ledger.db     another ledger
      posttrain audit || posttrain why rl          what differs, where something was found

    """
    with existing_ledger(ledger_at) as source:
        found = conflicts(source.store)
        findings = [_finding(conflict) for conflict in found if conflict.comparable]
        findings += _refuted(source)
        apart = [_finding(conflict) for conflict in found if not conflict.comparable]
        adopted = list(_adopted(source))
    for line in (*findings, *apart, *adopted):
        click.echo(line)
    if findings:
        sys.exit(1)
    if not apart:
        click.echo("Every key ever executed has made one set of outputs.")


def _adopted(source: Ledger) -> Iterator[str]:
    """Results that were taken over from an older version although something differed."""
    for adoption in source.annotations.adoptions().values():
        record = source.stage_run(adoption.subject)
        if record is not None and adoption.differences:
            yield (
                f"{record.stage}: adopted in run {record.run_id}, not made by this version: "
                f"{adoption.reason}"
            )


def _refuted(source: Ledger) -> Iterator[str]:
    """Stage runs whose last verification at a level did not hold."""
    last = {(each.subject, each.level): each for each in source.annotations.verifications()}
    for found in last.values():
        record = None if found.holds else source.stage_run(found.subject)
        if record is not None:
            yield (
                f"{record.stage}: verified at {found.level}, and it did not hold: "
                f"run {record.run_id}, key {record.key[:12]}"
            )


def _finding(conflict: Conflict) -> str:
    newest, oldest = conflict.runs[0], conflict.runs[-1]
    lines = [
        f"{conflict.stage}: key {conflict.key[:12]} made {len(conflict.runs)} different results:"
        f" {explain_conflict(conflict.runs)}"
    ]
    before = {record.role: record for record in oldest.outputs}
    for record in newest.outputs:
        other = before.get(record.role)
        if other is not None and other.digest != record.digest:
            lines.append(
                f"  {record.path}: {other.digest[:12]} in run {oldest.run_id} on {oldest.host}, "
                f"{record.digest[:12]} in run {newest.run_id} on {newest.host}"
            )
    return "\n".join(lines)
