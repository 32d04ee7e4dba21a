"""`posttrain algorithm`: what a name such as "GRPO" stands for, switch by switch."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click
from pydantic import BaseModel
from rich.console import Console

from posttrain.cli.options import DocumentedGroup, plain_table
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.identity import (
    Identified,
    canonical,
    digest,
    flat,
    name_by_digest,
    resolved,
)
from posttrain.learning.algorithms.preference import PREFERENCE_PRESETS, PreferenceAlgorithm
from posttrain.learning.algorithms.presets import PRESETS, preset
from posttrain.pipeline.recipe import load_recipe
from posttrain.pipeline.workspace import Workspace
from posttrain.stage.errors import UserError, nearest

AnyAlgorithm = Algorithm | PreferenceAlgorithm

_output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print it.",
)


_PAIRS = "m: log-ratio to the reference of the chosen completion minus that of the rejected one."


class _Shown(NamedTuple):
    """An algorithm and where it was found."""

    name: str
    algorithm: AnyAlgorithm
    equation: str = ""
    source: str = ""
    note: str = ""
    method: str = ""
    """Digest of the whole stage's mathematics, where the algorithm is a recipe's."""

    def as_object(self) -> dict[str, object]:
        """What `-o json` prints; `canonical` is the text that is hashed."""
        return {
            "name": self.name,
            "digest": digest(self.algorithm),
            "algorithm": resolved(self.algorithm),
            "canonical": canonical(self.algorithm),
            "equation": self.equation,
            "source": self.source,
            "note": self.note,
            **({"method": self.method} if self.method else {}),
        }


@click.group(cls=DocumentedGroup)
def algorithm() -> None:
    """Show what an algorithm's name stands for: switches, equation, source and hash.

    A NAME is a preset, a digest that a report states (its first eight digits do, and so do those of
    version 0.1), or the path of a recipe: then its own algorithm is meant.

    Examples:
      posttrain algorithm list                  every preset, in a line each
      posttrain algorithm show dapo             tuple, equation, source and hash
      posttrain algorithm diff grpo grpo_trl    the switches in which two differ
      posttrain algorithm diff grpo recipe.yaml

    """


@algorithm.command("list")
@_output_option
def list_(output: str) -> None:
    """List the presets of RL and of preference optimization, with their hashes."""
    if output == "json":
        click.echo(json.dumps([_of_preset(name).as_object() for name in _names()], indent=2))
        return
    for presets, heading in (
        (PRESETS, "advantage · ratio · aggregation · ..."),
        (PREFERENCE_PRESETS, "loss on pairs (tasks.preference) · ..."),
    ):
        table = plain_table("name", "hash", heading, unbroken=("name", "hash"))
        table.columns[0].min_width = max(map(len, _names()))
        for name in presets:
            known = _of_preset(name).algorithm
            table.add_row(f"[bold]{name}[/]", digest(known)[:12], known.describe())
        Console().print(table)


@algorithm.command()
@click.argument("name")
@_output_option
@click.option("-v", "--verbose", is_flag=True, help="Say of each switch what it does.")
def show(name: str, output: str, verbose: bool) -> None:
    """Show the algorithm NAME: every switch, its equation, its source and its hash."""
    found = _find(name)
    if output == "json":
        objects = [each.as_object() for each in found]
        click.echo(json.dumps(objects[0] if len(objects) == 1 else objects, indent=2))
        return
    for each in found:
        _print(each, verbose=verbose)


@algorithm.command()
@click.argument("before", metavar="NAME")
@click.argument("after", metavar="OTHER")
@_output_option
def diff(before: str, after: str, output: str) -> None:
    """Show the switches in which the algorithms NAME and OTHER differ."""
    one, other = _find(before)[0], _find(after)[0]
    if type(one.algorithm) is not type(other.algorithm):
        raise UserError(
            f"{one.name} and {other.name} have no switch in common, as one learns from rewards and"
            " the other from pairs; name two of a kind"
        )
    ours, theirs = flat(one.algorithm), flat(other.algorithm)
    names = sorted(name for name in ours | theirs if ours.get(name) != theirs.get(name))
    if output == "json":
        changed = {name: [ours.get(name), theirs.get(name)] for name in names}
        click.echo(json.dumps(changed, indent=2))
        return
    if not names:
        click.echo(f"{one.name} and {other.name} are one algorithm: {digest(one.algorithm)[:12]}")
        return
    table = plain_table("switch", one.name, other.name)
    table.add_row("[dim]hash[/]", digest(one.algorithm)[:12], digest(other.algorithm)[:12])
    for name in names:
        table.add_row(
            name, *(_value(each[name]) if name in each else "[dim]-[/]" for each in (ours, theirs))
        )
    Console().print(table)


def _names() -> list[str]:
    return [*PRESETS, *PREFERENCE_PRESETS]


def _of_preset(name: str) -> _Shown:
    if name in PREFERENCE_PRESETS:
        return _Shown(name, *PREFERENCE_PRESETS[name], note=_PAIRS)
    known = preset(name)
    return _Shown(name, known.algorithm, known.equation, known.source, known.note)


def _find(name: str) -> list[_Shown]:
    """The preset of that name or digest, or the algorithms of the recipe at that path."""
    if name in _names():
        return [_of_preset(name)]
    if named := name_by_digest(name, {each: _of_preset(each).algorithm for each in _names()}):
        return [_of_preset(named)]
    path = Path(name)
    if not path.exists():
        if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
            raise UserError(f"there is no recipe at {name}; name one, or a preset")
        raise UserError(
            f"there is no algorithm '{name}'{nearest(name, _names()) or '; see algorithm list'}"
        )
    recipe = load_recipe(path)
    stages = recipe.resolve(Workspace.of(recipe).root).stages.values()
    found = [
        _of_stage(f"{recipe.name}:{stage.name}", value)._replace(
            method=digest(stage.config) if isinstance(stage.config, Identified) else ""
        )
        for stage in stages
        for _, value in stage.config
        if isinstance(value, Algorithm | PreferenceAlgorithm)
    ]
    if not found:
        raise UserError(f"{name}: no stage of this recipe has an algorithm; name another recipe")
    return found


def _of_stage(name: str, found: AnyAlgorithm) -> _Shown:
    """An algorithm of a recipe, with the description of the preset that it equals, if any."""
    for known_as in _names():
        each = _of_preset(known_as)
        if each.algorithm == found:
            return each._replace(name=f"{name} = {known_as}")
    return _Shown(name, found)


def _print(shown: _Shown, *, verbose: bool) -> None:
    console = Console(highlight=False)
    console.print(f"[bold]{shown.name}[/]  {shown.algorithm.describe()}", soft_wrap=True)
    console.print(f"sha256 {digest(shown.algorithm)}", soft_wrap=True)
    if shown.method:
        console.print(f"method sha256 {shown.method}", soft_wrap=True)
    console.print()
    more = ("meaning",) if verbose else ()
    table = plain_table("switch", "value", *more, unbroken=("switch", "value"))
    meanings = dict(_meanings(shown.algorithm, ()))
    for path, value in flat(shown.algorithm).items():
        table.add_row(path, _value(value), *([f"[dim]{meanings[path]}[/]"] if verbose else []))
    console.print(table)
    for heading, text in (
        ("equation", shown.equation),
        ("source", shown.source),
        ("note", shown.note),
    ):
        if text:
            console.print(f"\n[bold]{heading}[/]")
            console.print(text, markup=False, highlight=False)


def _value(value: object) -> str:
    """A switch as it is written in a recipe."""
    return "[dim]null[/]" if value is None else f"[cyan]{json.dumps(value).strip(chr(34))}[/]"


def _meanings(config: BaseModel, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """What each switch does, from its docstring, by dotted path."""
    for name, field in type(config).model_fields.items():
        inner = getattr(config, name)
        if isinstance(inner, BaseModel):
            yield from _meanings(inner, (*path, name))
        elif isinstance(inner, Mapping) and inner:
            for key, part in inner.items():
                yield from _meanings(part, (*path, name, key))
        else:
            text = " ".join((field.description or "").split()).replace("`", "").replace("[", r"\[")
            yield ".".join((*path, name)), text
