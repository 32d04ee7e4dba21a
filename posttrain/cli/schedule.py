"""`posttrain schedule`: recipes that run by the clock."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from posttrain.cli.legends import say_legend
from posttrain.cli.options import DocumentedGroup, plain_table
from posttrain.provenance.ledger.location import project_root
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.formatting import duration

if TYPE_CHECKING:
    from posttrain.operations.schedule.notes import ScheduleNotes, Tick
    from posttrain.operations.schedule.recipes import Schedule

_COLORS = {
    "succeeded": "green",
    "unchanged": "green",
    "running": "cyan",
    "waiting": "yellow",
    "failed": "red",
    "crashed": "red",
}
_WIDE = 400
_NONE = "no schedule is applied; a recipe declares it under schedules:, see posttrain schedule"
name_argument = click.argument("name")


@click.group(cls=DocumentedGroup)
def schedule() -> None:
    """Run recipes by the clock; `posttrain up` starts the servers and the worker that do it.

    A recipe declares when it runs, and git has it:

      schedules:
        nightly: {cron: "0 2 * * *", timezone: Europe/Berlin, missed: latest}

    Further keys: overlap (enqueue, cancel), missed (skip, latest, backfill:N), only_if_moved,
    watch, retries, retry_seconds, grace_seconds, overrides, release, notify_url, notify_command.
    """


@schedule.command("apply")
def apply_() -> None:
    """Take over what the recipes of the checked-out commit declare; `posttrain up` does it too.

    What is right is applied, each that is wrong is one sentence, and then the exit code is 2.
    """
    from posttrain.operations.schedule.recipes import apply

    root = project_root(Path.cwd())
    said, wrong = apply(root)
    if not said and not wrong:
        said = ["nothing new: every schedule is as the recipes of this commit declare it"]
    for line in said:
        click.echo(line)
    for line in wrong:
        click.echo(f"error: {line}", err=True)
    if wrong:
        sys.exit(2)
    click.echo(_hint(root), nl=False)


@schedule.command("list")
def list_() -> None:
    """Every schedule: its clock, what came out last, what comes next."""
    from posttrain.operations.schedule.clock import instant
    from posttrain.operations.schedule.notes import open_notes
    from posttrain.operations.schedule.recipes import Schedule, read_schedules

    root = project_root(Path.cwd())
    table = plain_table("name", "recipe", "cron", "missed", "last", "next")
    with open_notes(root) as notes:
        known = notes.declarations()
        for each in known.values():
            found = Schedule.from_text(each.text)
            config = found.config
            last = notes.history(each.name, limit=1)
            told = f"{instant(last[0].due, config.timezone)} {_status(last[0])}" if last else ""
            coming = "[yellow]paused[/]" if each.paused else _next(found)
            when = f"{config.cron} {config.timezone}"
            table.add_row(each.name, found.recipe, when, config.missed, told, coming)
    if table.row_count:
        _print(table)
        say_legend("schedules")
    schedules, wrong = read_schedules(root)
    new = [each.name for each in schedules
           if each.name not in known or known[each.name].text != each.as_text()]  # fmt: skip
    none = not (table.row_count or wrong or new)
    for line in [
        *([_NONE] * none),
        *wrong,
        *([f"not applied yet: {', '.join(new)}; posttrain schedule apply"] * bool(new)),
    ]:
        click.echo(line)


@schedule.command()
@name_argument
def pause(name: str) -> None:
    """Start nothing of NAME until it is resumed; a run that is under way goes on."""
    _set_paused(name, "paused")
    click.echo(f"{name}: paused")


@schedule.command()
@name_argument
def resume(name: str) -> None:
    """Let NAME run again; what fell into the pause is not made good."""
    click.echo(f"{name}: next {_next(_set_paused(name, 'resumed'))}")


def _set_paused(name: str, event: str) -> "Schedule":
    from posttrain.operations.schedule.notes import open_notes

    with open_notes(project_root(Path.cwd())) as notes:
        found = _required(notes, name)
        notes.add(name, 0.0, event, f"{event} by hand")
    return found


@schedule.command()
@name_argument
def run(name: str) -> None:
    """Run NAME once, now; only_if_moved does not hold it back."""
    from posttrain.operations.schedule.notes import open_notes

    root = project_root(Path.cwd())
    with open_notes(root) as notes:
        _required(notes, name)
        paused = notes.declarations()[name].paused
        # As exact as Prefect's own times are, by which the flow run is found again.
        now = round(time.time(), 3)
        notes.add(name, now, "waiting", "asked for by hand", kind="manual")
    if paused:
        said = f"it is paused, and starts after: posttrain schedule resume {name}"
    else:
        said = "it waits for a worker" if _hint(root) else "the worker takes it up within seconds"
    click.echo(f"{name}: asked for; {said}{_hint(root)}")


@schedule.command()
@name_argument
def cancel(name: str) -> None:
    """End the run of NAME that is under way, and what waits behind it."""
    from posttrain.operations.schedule.notes import open_notes

    with open_notes(project_root(Path.cwd())) as notes:
        live = [tick for tick in notes.live() if tick.schedule == name]
        if not live:
            _required(notes, name)
        for tick in live:
            now: Tick | None = tick
            # It may begin, or come to its end, at this moment.
            while now is not None and not now.over and not notes.cancel(now):
                now = notes.tick(tick.schedule, tick.due)
    click.echo(f"{name}: {len(live)} cancelled" if live else f"{name}: nothing runs or waits")


@schedule.command()
@click.argument("name", required=False)
@click.option("-n", "limit", type=click.IntRange(min=1), default=20, show_default=True,
              help="How many, the newest first.")  # fmt: skip
@click.option("-v", "--verbose", is_flag=True, help="Everything that happened to each.")
def history(name: str | None, limit: int, verbose: bool) -> None:
    """What was due, what was decided about it and why, what ran and how it ended."""
    from posttrain.operations.schedule.clock import instant
    from posttrain.operations.schedule.notes import open_notes
    from posttrain.operations.schedule.recipes import Schedule

    table = plain_table("due", "schedule", "outcome", "took", "why")
    with open_notes(project_root(Path.cwd())) as notes:
        zones = {each.name: Schedule.from_text(each.text).config.timezone
                 for each in notes.declarations().values()}  # fmt: skip
        ticks = notes.history(name, limit=limit)
        if name is not None and not ticks:
            _required(notes, name)
        for tick in ticks:
            zone = zones.get(tick.schedule, "UTC")
            table.add_row(
                instant(tick.due, zone), tick.schedule, _status(tick), _took(tick),
                escape(_explain(tick, zone, verbose=verbose)),
            )  # fmt: skip
    if table.row_count:
        _print(table)
        say_legend("ticks")
    else:
        click.echo("Nothing was due yet.")


def _explain(tick: "Tick", zone: str, *, verbose: bool) -> str:
    from posttrain.operations.schedule.clock import instant

    if verbose:
        return "\n".join(f"{instant(at, zone, seconds=True)} {said}" for at, said in tick.story)
    # What was frozen at the start and is not as it was belongs to the answer.
    extra = [
        said for _, said in tick.story if said.startswith(("the spec", "the param", "uncommitted"))
    ]
    run_id, log = tick.data.get("run_id"), tick.data.get("log")
    told = [f"run {run_id}"] * bool(run_id) + [f"log: {log}"] * (
        tick.status in ("failed", "crashed") and bool(log)
    )
    return "; ".join([tick.reason, *extra[-2:], *told])


@schedule.command("next")
@click.argument("name", required=False)
@click.option("-n", "count", type=click.IntRange(min=1), default=5, show_default=True,
              help="How many times of each schedule.")  # fmt: skip
def next_(name: str | None, count: int) -> None:
    """When NAME, or everything, runs next."""
    from posttrain.operations.schedule.clock import instant
    from posttrain.operations.schedule.notes import open_notes
    from posttrain.operations.schedule.recipes import Schedule
    from posttrain.operations.schedule.times import next_ticks

    with open_notes(project_root(Path.cwd())) as notes:
        if name is not None:
            _required(notes, name)
        chosen = [each for each in notes.declarations().values() if name in (None, each.name)]
    found = [Schedule.from_text(each.text) for each in chosen if not each.paused]
    coming = sorted(
        (moment, each.name, each.config.timezone)
        for each in found
        for moment in next_ticks(each.clock, time.time(), count)
    )
    if not coming:
        click.echo(f"Nothing runs next: {'every schedule is paused.' if chosen else _NONE}")
    for moment, called, zone in coming[:count]:
        click.echo(f"{instant(moment, zone)} {zone}  {called}")


def _required(notes: "ScheduleNotes", name: str) -> "Schedule":
    from posttrain.operations.schedule.recipes import Schedule

    known = notes.declarations()
    if name not in known:
        raise UserError(f"there is no schedule '{name}'{nearest(name, known)}; a recipe declares "
                        "it under schedules:, see posttrain schedule --help")  # fmt: skip
    return Schedule.from_text(known[name].text)


def _next(each: "Schedule") -> str:
    from posttrain.operations.schedule.clock import instant
    from posttrain.operations.schedule.times import next_ticks

    coming = next_ticks(each.clock, time.time(), 1)
    zone = each.config.timezone
    return f"{instant(coming[0], zone)} {zone}" if coming else "never"


def _status(tick: "Tick") -> str:
    color = _COLORS.get(tick.status)
    return f"[{color}]{tick.status}[/]" if color else tick.status


def _took(tick: "Tick") -> str:
    if tick.started is None or tick.ended is None:
        return ""
    return duration(max(0.0, tick.ended - tick.started))


def _hint(root: Path) -> str:
    from posttrain.operations.services.plan import FOLDER
    from posttrain.operations.services.process import alive

    if alive(root / FOLDER, "supervisor") is None:
        return "\nno worker is up here; start the servers and the worker with: posttrain up\n"
    return ""


def _print(table: Table) -> None:
    """Lines of a pipe are not cut: a reason stays in one line, for grep."""
    console = Console()
    Console(width=None if console.is_terminal else _WIDE).print(table)
