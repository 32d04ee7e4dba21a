"""`posttrain schedule`: recipes that run by the clock."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from posttrain.cli.options import DocumentedGroup, plain_table
from posttrain.operations.schedule.admit import clock
from posttrain.operations.schedule.journal import Journal, Tick, journal_location, open_journal
from posttrain.operations.schedule.schedule import (
    CronSchedule,
    checked,
    parse_concurrency,
    parse_missed,
)
from posttrain.provenance.ledger.location import project_root
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import duration

_COLORS = {
    "succeeded": "green",
    "unchanged": "green",
    "running": "cyan",
    "waiting": "yellow",
    "failed": "red",
    "crashed": "red",
}
_WIDE = 400
name_argument = click.argument("name")


def _open() -> Journal:
    return open_journal(journal_location(project_root(Path.cwd())))


@click.group(cls=DocumentedGroup)
def schedule() -> None:
    """Run recipes by the clock; `posttrain up` starts the servers and the worker that do it."""


@schedule.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--cron", required=True, help='Five fields, for example "0 2 * * *".')
@click.option("--name", help="Name of the schedule [default: the recipe's].")
@click.option("--timezone", default="UTC", show_default=True, help="For example Europe/Berlin.")
@click.option("--on-missed", default="latest", show_default=True, help="skip, latest, backfill:N.")
@click.option("--only-if-moved", is_flag=True, help="End at once when no input's digest changed.")
@click.option(
    "--watch",
    multiple=True,
    help="One more input: file:PATH, remote://NAME/PATH, hf:datasets/NAME@REV, sql:URL#QUERY.",
)
@click.option("--concurrency", default="1:queue", show_default=True, help="Or 1:cancel-new.")
@click.option("--retries", type=click.IntRange(min=0), default=1, show_default=True,
              help="Further attempts at a run that failed.")  # fmt: skip
@click.option("--retry-seconds", type=float, default=30.0, show_default=True,
              help="Pause before each of them.")  # fmt: skip
@click.option("--grace-seconds", type=float, default=120.0, show_default=True,
              help="A start that is later than this was missed.")  # fmt: skip
@click.option("--set", "overrides", multiple=True, metavar="STAGE.PARAM=VALUE",
              help="Override a parameter in every run; repeatable.")  # fmt: skip
@click.option("--release", help="Make a candidate of this release of each success.")
@click.option("--notify-url", help="Webhook that hears of runs that failed for good.")
@click.option("--notify-command", help="Local command that gets the failure as JSON.")
@click.option("--replace", "again", is_flag=True, help="Change a schedule that is there.")
def add(recipe: Path, **options: Any) -> None:
    """Run RECIPE whenever --cron says so. A run runs the commit that is checked out then.

    Examples:
      posttrain schedule add . --name nightly --cron "0 2 * * *" --timezone Europe/Berlin
      posttrain schedule add recipes/gsm8k --cron "0 * * * *" --only-if-moved --watch file:in.jsonl

    """
    from posttrain.operations.schedule.moved import require_watchable
    from posttrain.operations.schedule.worktree import require_committed

    root = project_root(Path.cwd())
    overrides = tuple(options.pop("overrides"))
    folder, title = _recipe(recipe, root, overrides)
    require_committed(root, folder)
    missed, backfill = parse_missed(options.pop("on_missed"))
    again, given = options.pop("again"), options.pop("name")
    declared = checked(
        CronSchedule(
            name=given or title.replace(".", "-").lower(),
            recipe=folder,
            title=title,
            on_missed=missed,
            backfill=backfill,
            watch=tuple(require_watchable(item) for item in options.pop("watch")),
            collision=parse_concurrency(options.pop("concurrency")),
            overrides=overrides,
            **options,
        )
    )
    with _open() as journal:
        _put(journal, declared, again=again)
        _write_prefect_yaml(root, journal)
    click.echo(f"{declared.name}: next {_next(declared)}{_hint(root)}")


def _recipe(recipe: Path, root: Path, overrides: Sequence[str]) -> tuple[str, str]:
    """The recipe's folder in the project and its name; it must resolve to a flow."""
    from posttrain.pipeline.recipe import load_recipe

    loaded = load_recipe(recipe, overrides)
    loaded.resolve(root)
    return loaded.directory.relative_to(root.resolve()).as_posix(), loaded.name


def _put(journal: Journal, declared: CronSchedule, *, again: bool) -> None:
    known = {each.name: each for each in journal.schedules()}
    if declared.name in known:
        if not again:
            raise UserError(
                f"there is a schedule '{declared.name}' already; --replace changes it, "
                "--name gives another name"
            )
        declared = replace(declared, paused=known[declared.name].paused)
    journal.put(declared)


@schedule.command("list")
def list_() -> None:
    """Every schedule: its clock, what came out last, what comes next."""
    table = plain_table("name", "recipe", "cron", "missed", "last", "next")
    with _open() as journal:
        for each in journal.schedules():
            last = journal.history(each.name, limit=1)
            told = f"{clock(each, last[0].due)} {_status(last[0])}" if last else ""
            coming = "[yellow]paused[/]" if each.paused else _next(each)
            when = f"{each.cron} {each.timezone}"
            table.add_row(each.name, each.recipe, when, each.missed(), told, coming)
    _print(table)


@schedule.command()
@name_argument
def pause(name: str) -> None:
    """Start nothing of NAME until it is resumed; a run that is under way goes on."""
    _set_paused(name, paused=True)
    click.echo(f"{name}: paused")


@schedule.command()
@name_argument
def resume(name: str) -> None:
    """Let NAME run again; what fell into the pause is not made good."""
    click.echo(f"{name}: next {_next(_set_paused(name, paused=False))}")


def _set_paused(name: str, *, paused: bool) -> CronSchedule:
    from posttrain.operations.schedule.schedule import paused_or_resumed

    with _open() as journal:
        changed = paused_or_resumed(journal.schedule(name), paused=paused)
        journal.put(changed)
        _write_prefect_yaml(project_root(Path.cwd()), journal)
    return changed


@schedule.command()
@name_argument
def remove(name: str) -> None:
    """Forget NAME; its history stays."""
    from posttrain.operations.schedule.worktree import remove as remove_worktree

    root = project_root(Path.cwd())
    with _open() as journal:
        if journal.running(journal.schedule(name).name):
            raise UserError(f"{name} is running; wait for it, or cancel the run in Prefect's pages")
        journal.remove(name)
        _write_prefect_yaml(root, journal)
    remove_worktree(root, name)
    click.echo(f"{name}: removed")


@schedule.command("run-now")
@name_argument
def run_now(name: str) -> None:
    """Run NAME once, now; --only-if-moved does not hold it back."""
    with _open() as journal:
        declared = journal.schedule(name)
        reason = "asked for with run-now"
        journal.add(declared.name, time.time(), kind="manual", status="waiting", reason=reason)
    click.echo(f"{name}: the worker starts it within seconds{_hint(project_root(Path.cwd()))}")


@schedule.command()
@click.argument("name", required=False)
@click.option("-n", "limit", type=click.IntRange(min=1), default=20, show_default=True,
              help="How many, the newest first.")  # fmt: skip
@click.option("-v", "--verbose", is_flag=True, help="Everything that happened to each.")
def history(name: str | None, limit: int, verbose: bool) -> None:
    """What was due, what was decided about it and why, what ran and how it ended."""
    table = plain_table("due", "schedule", "outcome", "took", "why")
    with _open() as journal:
        declared = {each.name: each for each in journal.schedules()}
        if name is not None:
            journal.schedule(name)
        for tick in journal.history(name, limit=limit):
            owner = declared.get(tick.schedule) or CronSchedule(tick.schedule, "", "* * * * *")
            why = _explain_tick(journal, owner, tick, verbose=verbose)
            table.add_row(
                clock(owner, tick.due), tick.schedule, _status(tick), _took(tick), escape(why)
            )
    _print(table)


def _explain_tick(journal: Journal, owner: CronSchedule, tick: Tick, *, verbose: bool) -> str:
    story = journal.story(tick)
    if verbose:
        return "\n".join(f"{clock(owner, at, seconds=True)} {said}" for at, said in story)
    # What was frozen at the start and is not as it was belongs to the answer.
    extra = [said for _, said in story if said.startswith(("the spec", "the param", "uncommitted"))]
    return "; ".join([tick.reason, *extra[-2:], *([f"run {tick.run_id}"] if tick.run_id else [])])


@schedule.command()
@click.option(
    "--limit", type=click.IntRange(min=1), default=2, show_default=True, help="Runs at once."
)
def serve(limit: int) -> None:
    """Run what is due here, as served deployments: no work pool, no worker, until Ctrl-C.

    PREFECT_API_URL names the server. Not beside a worker: a deployment is served or in a pool.
    """
    from posttrain.operations.schedule.serve import serve as serving

    serving(project_root(Path.cwd()), limit)


@schedule.command("next")
@click.argument("name", required=False)
@click.option("-n", "count", type=click.IntRange(min=1), default=5, show_default=True,
              help="How many times of each schedule.")  # fmt: skip
def next_(name: str | None, count: int) -> None:
    """When NAME, or everything, runs next."""
    from posttrain.operations.schedule.times import next_ticks

    with _open() as journal:
        chosen = [journal.schedule(name)] if name else journal.schedules()
    coming = sorted(
        (moment, each.name, each)
        for each in chosen
        if not each.paused
        for moment in next_ticks(each, time.time(), count)
    )
    for moment, called, each in coming[:count]:
        click.echo(f"{clock(each, moment)} {each.timezone}  {called}")


def _write_prefect_yaml(root: Path, journal: Journal) -> None:
    from posttrain.operations.schedule.deployments import prefect_yaml

    (root / "prefect.yaml").write_text(prefect_yaml(journal.schedules()), encoding="utf-8")


def _next(each: CronSchedule) -> str:
    from posttrain.operations.schedule.times import next_ticks

    coming = next_ticks(each, time.time(), 1)
    return f"{clock(each, coming[0])} {each.timezone}" if coming else "never"


def _status(tick: Tick) -> str:
    color = _COLORS.get(tick.status)
    return f"[{color}]{tick.status}[/]" if color else tick.status


def _took(tick: Tick) -> str:
    if tick.started is None or tick.ended is None:
        return ""
    return duration(max(0.0, tick.ended - tick.started))


def _hint(root: Path) -> str:
    from posttrain.operations.services.plan import FOLDER
    from posttrain.operations.services.process import alive

    if alive(root / FOLDER, "supervisor") is None:
        return "\nno worker is up here; start the servers and the worker with: posttrain up"
    return ""


def _print(table: Table) -> None:
    """Lines of a pipe are not cut: a reason stays in one line, for grep."""
    console = Console()
    Console(width=None if console.is_terminal else _WIDE).print(table)
