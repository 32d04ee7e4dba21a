"""`posttrain env`: environments and worlds, what they are, and how an episode in one goes."""

import json
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from rich.console import Console
from rich.markup import escape

from posttrain.cli.env_played import INEXACT
from posttrain.cli.options import DocumentedGroup, plain_table
from posttrain.stage.errors import UserError, nearest

if TYPE_CHECKING:
    from posttrain.learning.episodes.environments.base import Environment
    from posttrain.learning.episodes.worlds.base import World

_COLUMNS = ("kind", "is", "what", "size", "needs", "missing", "source", "exact", "roles")
_settings_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of it, such as size=8; may be given several times.",
)
_seed_option = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the problem."
)


_recipe_option = click.option(
    "--recipe",
    type=click.Path(path_type=Path),
    help="Whose plug-ins count too [default: the nearest, from this folder up].",
)


class ListedEnvironment(NamedTuple):
    """A line of the list."""

    kind: str
    sort: str
    """`world` where it poses its own problems, else `environment`."""
    what: str
    size: str
    """The settings that make its problems larger."""
    needs: str
    """Packages and programs beside those that are always there."""
    missing: str
    """What installs those that are not here."""
    source: str
    exact: str
    """`no` where a clock or a network has a say: its episodes are not played again."""
    roles: str
    """Who may be asked beside the policy."""


_verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Of an error in a world, all calls that led to it."
)


@click.group(cls=DocumentedGroup)
def env() -> None:
    """List environments and worlds, show what an episode is like, and play one yourself.

    An environment answers a policy turn by turn; a world is one that poses its own problems too. A
    recipe names a world in a source ({kind: world, world: guess}) and in the stages that play
    (environment: guess); docs/worlds.md says what a random player and the script earn in each.

    Examples:
      posttrain env list
      posttrain env show guess --set size=8
      posttrain env play guess
      posttrain env play guess --policy data/rl/policy

    """


@env.command("list")
@_recipe_option
@click.option("--tsv", is_flag=True, help="Print tab-separated lines, with a heading.")
def list_(recipe: Path | None, tsv: bool) -> None:
    """List environments and worlds: what they are, their size knobs, what they need.

    Those of the plug-ins that a recipe names are listed too, of the nearest one or of --recipe.
    """
    with _offered(recipe) as offered:
        listed = [_listed(kind, part) for kind, part in offered.items()]
    if tsv:
        for row in (_COLUMNS, *listed):
            click.echo("\t".join(cell.replace("\t", " ") for cell in row))
        return
    console = Console(highlight=False)
    for sort, about in (
        ("world", "poses its own problems"),
        ("environment", "answers what a policy says of problems from elsewhere"),
    ):
        console.print(f"[bold]{sort}[/]  {about}")
        table = plain_table("kind", "what", unbroken=("kind",))
        table.padding = (0, 2, 0, 0)
        for each in listed:
            if each.sort == sort:
                table.add_row(f"  {each.kind}", "\n".join(_told(each)))
        console.print(table)
        console.print()


@env.command()
@click.argument("name")
@_seed_option
@_settings_option
@_recipe_option
@_verbose_option
def show(name: str, seed: int, settings: Sequence[str], recipe: Path | None, verbose: bool) -> None:
    """Show the settings of NAME, a problem, and an episode that its script plays, turn by turn.

    Behind a turn stand what it earned and the key of the situation in which it was spoken: turns
    from equal keys are compared with each other where an algorithm goes by state.

    Examples:
      posttrain env show bandit
      posttrain env show bandit --set arms=2 --seed 7
      posttrain env show my_world --recipe recipes/mine

    """
    from posttrain.cli.env_played import print_script, print_settings

    with _found(name, settings, recipe, verbose=verbose) as environment:
        print_settings(environment)
        if hasattr(environment, "pose"):
            click.echo()
            print_script(_world(environment), by="script", seed=seed)
            return
    click.echo(
        f"\nIt poses no problems of its own: a stage names it (rl.producer.environment: {name}) for"
        " the problems of the recipe."
    )


@env.command()
@click.argument("name")
@_seed_option
@_settings_option
@click.option("--role", metavar="ROLE", default="policy", show_default=True, help="Whose part.")
@click.option(
    "--by", type=click.Choice(["script", "random"]), help="Watch the script or a random player."
)
@click.option(
    "--policy",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Watch the policy of this checkpoint folder.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(min=0.0),
    default=1.0,
    show_default=True,
    help="With --policy: of its draws; at 0 it says what is likeliest.",
)
@click.option(
    "--script",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Play the lines of this file, one a turn.",
)
@_recipe_option
@_verbose_option
def play(
    name: str,
    seed: int,
    settings: Sequence[str],
    role: str,
    recipe: Path | None,
    verbose: bool,
    **players: Any,
) -> None:
    r"""Play an episode in the world NAME, or watch one.

    You read what the role reads, and write a line a turn; one that ends with a backslash goes on in
    the next. All other roles are played by the world's script. The end of the input (Ctrl-D) ends
    the episode where it stands. --by, --policy and --script let somebody else play.

    Examples:
      posttrain env play guess --set size=8 --seed 3
      posttrain env play guess --by random
      posttrain env play guess --policy data/rl/policy --temperature 0
      posttrain env play guess --script moves.txt

    """
    from posttrain.cli import env_played

    by, policy, file = (players[each] for each in ("by", "policy", "file"))
    given = {"--by": by, "--policy": policy, "--script": file}
    named = [option for option, value in given.items() if value is not None]
    if len(named) > 1:
        raise UserError(f"{named[0]} and {named[1]} each say who plays; leave one of them out")
    if policy is not None and role != "policy":
        raise UserError("--policy plays the role policy; leave --role out")
    with _found(name, settings, recipe, verbose=verbose) as environment:
        world = _world(environment)
        if policy is not None:
            env_played.print_policy(world, policy, seed=seed, temperature=players["temperature"])
        elif by is not None:
            env_played.print_script(world, by=by, seed=seed, role=role)
        else:
            env_played.play_lines(world, file, seed=seed, role=role)


@contextmanager
def _offered(path: Path | None) -> "Iterator[Mapping[str, type[Environment]]]":
    """All environments that a recipe may name, by kind."""
    from posttrain.cli.schema import recipe_and_root
    from posttrain.learning.episodes.registry import EPISODE_ENVIRONMENTS
    from posttrain.pipeline.slots import check_plugins
    from posttrain.stage.slots import parts_of_modules, plugged

    recipe, _ = recipe_and_root(path)
    plugins = parts_of_modules(recipe.plugins) if recipe else {}
    # As the plan does: one that is broken would only be missing.
    check_plugins(plugins, "plugins")
    with plugged(lambda: plugins):
        yield EPISODE_ENVIRONMENTS.offered()


@contextmanager
def _found(
    name: str, settings: Sequence[str], recipe: Path | None, *, verbose: bool
) -> "Iterator[Environment]":
    """An environment with settings, if all that it needs is here; what it raises is a sentence."""
    from posttrain.learning.episodes.posed import lacking
    from posttrain.stage.started import traced_to_part

    with _offered(recipe) as offered:
        if name not in offered:
            hint = nearest(name, offered) or f"; there are {', '.join(offered)}"
            hint += "" if recipe else "; one of a plug-in is found by --recipe"
            raise UserError(f"there is no environment '{name}'{hint}")
        part = offered[name]
        if missing := lacking(part):
            raise UserError(
                f"{name} needs {missing[0].what}, which is not here; run: {missing[0].remedy}"
            )
        values = dict(_setting(each) for each in settings)
        environment = part.parse({**values, "kind": name}, where=name)
        try:
            yield environment
        except UserError:
            raise
        except Exception as error:
            if (said := traced_to_part(error)) is None:
                raise
            if verbose:
                click.echo(traceback.format_exc(), err=True)
            shown = "" if verbose else " (-v shows the calls that led to it)"
            raise UserError(f"{said}; correct that line{shown}") from error


def _setting(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name or name == "kind":
        raise UserError(f"--set '{text}': write it as NAME=VALUE, such as size=8")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _world(environment: "Environment") -> "World":
    from posttrain.learning.episodes.worlds.base import World

    if not isinstance(environment, World):
        raise UserError(
            f"environment '{environment.kind}' poses no problems of its own, so there is nothing to"
            " play; take a world: posttrain env list"
        )
    return environment


def _told(each: ListedEnvironment) -> Iterator[str]:
    """What the list says of one, a line each: four columns would be too narrow to read."""
    yield escape(each.what)
    if each.size:
        yield f"[dim]size: {escape(each.size)}[/]"
    if each.roles:
        yield f"[dim]roles: {escape(each.roles)}[/]"
    if each.needs:
        yield f"[dim]needs: {escape(each.needs)}[/]"
    if each.missing:
        yield f"[red]not here; run: {escape(each.missing)}[/]"
    if each.exact == "no":
        yield f"[dim]{INEXACT}[/]"


def _listed(kind: str, part: "type[Environment]") -> ListedEnvironment:
    from posttrain.learning.episodes.posed import lacking
    from posttrain.pipeline.slots import first_sentence
    from posttrain.stage.extras import extra_of

    extras = [(each, extra_of(each)) for each in sorted(part.PACKAGES)]
    packages = [f"posttrain[{extra}]" if extra else each for each, extra in extras]
    return ListedEnvironment(
        kind=kind,
        sort="world" if hasattr(part, "pose") else "environment",
        what=first_sentence(part.__doc__ or ""),
        size=", ".join(getattr(part, "SIZES", ())),
        needs=", ".join(dict.fromkeys([*packages, *part.PROGRAMS])),
        missing="; ".join(dict.fromkeys(each.remedy for each in lacking(part))),
        source=" ".join(part.SOURCE.split()),
        exact="yes" if part.EXACT else "no",
        roles=", ".join(sorted(part.ROLES)),
    )
