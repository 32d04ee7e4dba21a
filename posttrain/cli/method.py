"""`posttrain method`: the catalog of published methods, and what a name stands for."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from posttrain.cli.options import DocumentedGroup, plain_table
from posttrain.provenance.ledger.location import project_root
from posttrain.stage.errors import UserError, UserErrors, nearest
from posttrain.stage.errors import shown as shown_file

if TYPE_CHECKING:
    from posttrain.methods.find import FoundMethod

_output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print it.",
)


@click.group(cls=DocumentedGroup)
def method() -> None:
    """List published methods, show what a name stands for, and test what it claims.

    A NAME is a method, a published system, a digest that a report states (its first eight digits
    do, and so do those of version 0.1), or the path of a recipe: then what that sets is meant.
    `method: NAME` at the top of a recipe lays a method's settings under its own sections.

    Examples:
      posttrain method list                  every published system, and the methods there are
      posttrain method list --family len     those about length
      posttrain method show dapo             source, equation, switches, claims
      posttrain method metrics dapo          what a claim of it may name
      posttrain method diff grpo grpo_trl    the switches in which two differ
      posttrain method diff grpo recipe.yaml
      posttrain method run dler              its claims: arms, verdict, figures
      posttrain method claims --html claims.html    all claims with their intervals, as a page

    """


@method.command("list")
@click.option("--family", metavar="FAMILY", help="Of one family: pg, div, ent, len, pref, ...")
@click.option(
    "--state",
    type=click.Choice(["y", "text", "p", "-"]),
    help="In one state: y whole and tested, text the same of one that sees, p in part, - not here.",
)
@click.option("--tsv", is_flag=True, help="Print tab-separated lines of systems, with a heading.")
def list_(family: str | None, state: str | None, tsv: bool) -> None:
    """List every published system with its state, and the base methods beside them.

    Of a hundred claims that are decided at 95%, two or three are decided wrongly. A file that is
    wrong is named at the end, which is with 2 then.
    """
    from posttrain.cli.method_list import Listed

    _refuse_family(family)
    with _of_project() as root:
        listed = Listed.of(root, family=family, state=state)
    if tsv:
        for row in listed.rows():
            click.echo("\t".join(row))
    else:
        listed.print()
    if listed.faults:
        raise UserErrors(map(str, listed.faults))


@method.command()
@click.argument("name")
@_output_option
@click.option("-v", "--verbose", is_flag=True, help="Say of each switch what it does.")
def show(name: str, output: str, verbose: bool) -> None:
    """Show the method NAME: source, equation, claims, and every switch of it; or the arena NAME.

    Beside a switch stands the framework's own default where that is another one: what a recipe has
    that names no method.
    """
    from posttrain.cli.method_print import (
        KnownOfMethod,
        is_arena,
        print_arena,
        print_method,
        shown_arena,
    )
    from posttrain.cli.method_shown import shown_method
    from posttrain.methods.find import arena_files, has_method

    with _of_project(named=name) as root:
        if is_arena(name):
            if output == "json":
                click.echo(json.dumps(shown_arena(name, root), indent=2))
            else:
                print_arena(name, root)
            return
        if has_method(name):
            _resolved(name, root)
        found = shown_method(name, root, beside=arena_files())
        known = KnownOfMethod.of(found.method, root) if found.method else KnownOfMethod()
        if output == "json":
            said = {"verdicts": known.verdicts, "checks": known.checks}
            click.echo(json.dumps(found.as_object() | said, indent=2))
        else:
            print_method(found, known, verbose=verbose)


@method.command()
@click.argument("name")
@_output_option
def metrics(name: str, output: str) -> None:
    """List what a claim of the method NAME may name in `mechanism` and `decide`.

    Those with a slash are in the curve of the section that `trains`, as the method sets it; an
    arm with other settings may have others. Those without are of the evaluation of each arm.

    Examples:
      posttrain method metrics grpo
      posttrain method metrics dapo -o json

    """
    from posttrain.cli.method_print import metrics_of_method, print_metrics
    from posttrain.cli.method_shown import shown_method

    with _of_project(named=name) as root:
        found = metrics_of_method(shown_method(name, root), root)
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        print_metrics(found)


@method.command()
@click.argument("before", metavar="NAME")
@click.argument("after", metavar="OTHER")
@_output_option
def diff(before: str, after: str, output: str) -> None:
    """Show the switches in which the methods NAME and OTHER differ."""
    from posttrain.cli.method_print import switch_value
    from posttrain.cli.method_shown import shown_method

    with _of_project() as root:
        one, other = shown_method(before, root), shown_method(after, root)
    if not one.sections.keys() & other.sections.keys():
        raise UserError(
            f"{one.name} and {other.name} have no switch in common, as they set other sections"
            f" ({', '.join(one.sections)} and {', '.join(other.sections)}); name two of a kind"
        )
    ours, theirs = one.switches(beside=other), other.switches(beside=one)
    names = sorted(name for name in ours | theirs if ours.get(name) != theirs.get(name))
    if output == "json":
        changed = {name: [ours.get(name), theirs.get(name)] for name in names}
        click.echo(json.dumps(changed, indent=2))
        return
    if not names:
        click.echo(f"{one.name} and {other.name} are one method: {one.digest[:12]}")
        return
    table = plain_table("switch", one.name, other.name)
    table.add_row("[dim]hash[/]", one.digest[:12], other.digest[:12])
    for name in names:
        table.add_row(
            name,
            *(switch_value(each[name]) if name in each else "[dim]-[/]" for each in (ours, theirs)),
        )
    Console().print(table)


@method.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--claim", "claims", multiple=True, help="Only this one; several are allowed.")
@click.option("--seeds", type=click.IntRange(min=1), help="Runs of each arm, in a trial.")
def run(names: Sequence[str], claims: Sequence[str], seeds: int | None) -> None:
    """Run what each method NAME claims: its arms against others, and the verdict in a sentence.

    Arms are paired by seed and share the arena's base. What was run before is not run again, so
    that a command that was stopped takes up where it was. The verdict is confirmed, refuted,
    undecided or void; it is kept in methods/verdicts.jsonl of the project, and shows as stale once
    the claim, the code of its stages or their parameters change. With other --seeds than the
    claim's it is a trial, and nothing is kept. Where a verdict on the claim was kept before and
    this one is another artifact, their figures are set beside each other; another word than the
    one that was kept ends the command with 1.
    """
    from posttrain.cli.method_run import run_methods

    if claims and len(names) > 1:
        raise UserError("--claim is of one method; name that alone")
    with _of_project() as root:
        run_methods([_resolved(name, root).method for name in names], claims, root, seeds=seeds)


@method.command()
@click.option("--family", metavar="FAMILY", help="Of one family: pg, div, ent, len, pref, ...")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "markdown"]),
    default="table",
    show_default=True,
    help="How to print them; markdown has those that were run.",
)
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page with a picture of each interval there instead.",
)
def claims(family: str | None, output: str, page: Path | None) -> None:
    """List every claim: what it is compared with, its figure with the interval, its verdict."""
    from posttrain.cli.method_claims import show_claims
    from posttrain.methods.find import every_method

    _refuse_family(family)
    with _of_project() as root:
        methods = [each for each in every_method().values() if family in (None, each.method.family)]
        show_claims(methods, root, output, page)


@method.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
def recheck(names: Sequence[str]) -> None:
    """Let verdicts stand where code moved and bits did not: run the first seed of each arm again.

    A verdict goes stale with the code of any of its stages. Where samples and curves of the
    first seed come to the same rows as when it was decided, and what it is decided by to the same
    figures, it is kept for today's code, in a line that names both commits. Without a NAME every
    stale claim is looked at. One whose first seed makes something else stays stale, and ends the
    command with 1.
    """
    from posttrain.cli.method_run import recheck_claim
    from posttrain.methods.find import every_method, find_method
    from posttrain.pipeline.verdicts import standing_verdicts

    failed, looked = [], 0
    with _of_project() as root:
        found = [find_method(name) for name in names] or [*every_method().values()]
        for (name, claim), word in standing_verdicts(found, root).items():
            if not word.startswith("stale"):
                continue
            looked += 1
            of_name = next(each.method for each in found if each.method.name == name)
            said = next(each for each in of_name.claims if each.name == claim)
            try:
                stands, told = recheck_claim(of_name, said, root)
            except UserError as refusal:
                stands, told = False, str(refusal)
            click.echo(told)
            if not stands:
                failed.append(f"{name}.{claim}")
    if failed:
        raise click.ClickException(f"stale: {', '.join(failed)}")
    if not looked:
        claims = sum(len(each.method.claims) for each in found)
        click.echo("nothing is stale" if claims else "nothing is claimed")


@method.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--gradients", is_flag=True, help="Compare gradients with the method's formula.")
def check(names: Sequence[str], gradients: bool) -> None:
    """Run two steps of each method on a tiny model, and show what its switches do to the weights.

    In each section that trains a policy, all switches are set back to the default of the stage,
    then one at a time. One that does nothing is told; a method that does nothing as a whole in one
    of its sections ends the command with 1. What a method connects by `inputs` is there as far as
    the tiny world has an artifact of that kind; where it has none, a line says so. What runs is
    told on stderr, and what the figures mean below the table.

    With --gradients two updates of the method's stage are looked at instead: the gradient of the
    log-probability of each token and of the weights, against those that its paper's formula has on
    the stored rollouts or pairs. The formula is written by hand apart from the product, as the
    function of the method's name in the file formulas.py beside the method's own. Printed are the
    distances as shares of the gradient's length, with weights in float64, then in float32. Above
    1e-5 for log-probabilities and for weights in float64, or 1e-4 in float32, the command ends
    with 1. A method without a formula is named, as nothing is known of it.

    What was found is kept in methods/checks.jsonl of the project, and counts as long as the method
    comes to the same settings: a system is whole (state y) once its method passed, and a claim of
    it is decided. So there must be a project.

    Examples:
      posttrain method check                 every method, in a minute
      posttrain method check dapo simpo
      posttrain method check --gradients     every method's gradients, in two minutes
      posttrain method check --gradients dapo

    """
    from posttrain.cli.method_check import check_gradients, check_switches
    from posttrain.methods.find import every_method

    project_root(Path.cwd())
    with _of_project() as root:
        methods = [_resolved(name, root) for name in names] or [*every_method().values()]
        look = check_gradients if gradients else check_switches
        failed = look(methods, root)
    if failed and gradients:
        raise click.ClickException(
            f"not shown to have their paper's gradients: {', '.join(failed)}"
        )
    if failed:
        raise click.ClickException(f"what they set does nothing: {', '.join(failed)}")


def _resolved(name: str, root: Path) -> "FoundMethod":
    """Find a method, and look up what its file says before anything runs."""
    from posttrain.methods.find import find_method
    from posttrain.pipeline.method_files import look_up_methods

    found = find_method(name)
    _, faults = look_up_methods([found], root)
    for fault in faults:
        raise fault
    return found


def _refuse_family(family: str | None) -> None:
    from posttrain.methods.method import FAMILIES

    if family is not None and family not in FAMILIES:
        hint = nearest(family, FAMILIES) or f"; there are {', '.join(FAMILIES)}"
        raise UserError(f"there is no family '{family}'{hint}")


@contextmanager
def _of_project(*, named: str = "") -> Iterator[Path]:
    """Let methods and parts of the project that this folder is in be found; give its root."""
    from posttrain.cli.schema import recipe_and_root
    from posttrain.methods.find import methods_of
    from posttrain.stage.slots import parts_of_modules, plugged

    recipe, root = recipe_and_root(None)
    plugins = recipe.plugins if recipe else ()
    where = f"{shown_file(recipe.path)}: plugins" if recipe else "plugins"
    offered = partial(parts_of_modules, plugins, where=where)
    with plugged(offered), methods_of(root, plugins, named=named):
        yield root
