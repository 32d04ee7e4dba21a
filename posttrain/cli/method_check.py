"""`posttrain method check`: what switches do, how far gradients are off, and the record of both."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from posttrain.methods.find import FoundMethod
from posttrain.operations.method_check import ALL_OF_IT, SwitchEffect, switch_effects
from posttrain.operations.tiny_world import NotInTinyWorldError, TinyWorld, make_tiny_world
from posttrain.pipeline.method_checks import CheckKind, KeptCheck, digest_of_method, keep_checks
from posttrain.pipeline.recipe_schema import stages_of_flow
from posttrain.provenance.git import revision_of

if TYPE_CHECKING:
    from posttrain.operations.gradients.check import MethodGradients

_HEAD = f"{'method':<30}{'log-probs':>10}{'weights':>10}{'in fp32':>10}{'weights':>10}"


def check_switches(methods: Sequence[FoundMethod], root: Path) -> list[str]:
    """Print what the switches of each method do as it ends, and keep whether it does anything.

    Args:
        methods: Those to look at.
        root: The project, whose file of checks this goes into.

    Returns:
        Names of those that do nothing as a whole.

    """
    said: dict[str, tuple[bool, str]] = {}
    switches = idle = 0
    with _looking(methods, root) as (console, world, each_method):
        console.print(f"[bold]{'method':<30}{'without':<46}change[/]", soft_wrap=True)
        for found in each_method:
            name = found.method.name
            effects: list[SwitchEffect] = []
            try:
                for effect in switch_effects(found.method, world):
                    console.print(_effect_line(effect, first=not effects), soft_wrap=True)
                    effects.append(effect)
            except NotInTinyWorldError as error:
                console.print(_not_looked_at(name, error), soft_wrap=True)
                continue
            if not effects:
                told = "nothing to switch off: it trains and measures nothing, or sets defaults"
                console.print(f"[dim]{name:<30}{told}[/]", soft_wrap=True)
                continue
            said[name] = _told_of_all(effects)
            switches += len(effects)
            idle += sum(not each.acts for each in effects)
    console.print(
        f"{len(said)} methods; {idle} of {switches} switches do nothing in two steps of a tiny"
        " model. A change is the largest of a weight, as a share of the largest that training made;"
        " of an evaluation or a diagnosis, the share of its figures that are others."
    )
    _keep(methods, root, "switches", said)
    return [name for name, (acts, _) in said.items() if not acts]


def check_gradients(methods: Sequence[FoundMethod], root: Path) -> list[str]:
    """Compare the gradients of methods with their formulas: a line for each as it ends; keep it.

    Args:
        methods: Those to look at.
        root: The project, whose file of checks this goes into.

    Returns:
        Names of those whose gradients are others than their formula's.

    """
    from posttrain.operations.gradients.check import method_gradients

    results: dict[str, list[MethodGradients]] = {}
    with _looking(methods, root) as (console, world, each_method):
        console.print(f"[bold]{_HEAD}[/]", soft_wrap=True)
        for found in each_method:
            name = found.method.name
            try:
                results[name] = method_gradients(found, world)
            except NotInTinyWorldError as error:
                results[name] = []
                console.print(_not_looked_at(name, error), soft_wrap=True)
                continue
            for each in results[name]:
                console.print(_line(each, alone=len(results[name]) == 1), soft_wrap=True)
            if not results[name]:
                told = "nothing to compare: no RL or pairs"
                console.print(f"[dim]{name:<30}{told}[/]", soft_wrap=True)
    console.print(_sentence(results))
    said = {
        name: (all(each.agree for each in sections), "; ".join(_figures(sections)))
        for name, sections in results.items()
        # One section without a formula is one that nobody compared.
        if sections and all(each.errors for each in sections)
    }
    _keep(methods, root, "gradients", said)
    return [name for name, sections in results.items() if any(each.differ for each in sections)]


@contextmanager
def _looking(
    methods: Sequence[FoundMethod], root: Path
) -> Iterator[tuple[Console, TinyWorld, Iterator[FoundMethod]]]:
    """Give a tiny world, and methods one by one under a bar that shows whose turn it is."""
    import torch

    torch.set_num_threads(1)
    console = Console(highlight=False)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with tempfile.TemporaryDirectory() as folder, bar:
        shown = bar.add_task("a tiny policy", total=len(methods))
        world = make_tiny_world(Path(folder), stages_of_flow("flows.post_training", root))

        def each_method() -> Iterator[FoundMethod]:
            for found in methods:
                bar.update(shown, description=found.method.name)
                yield found
                bar.advance(shown)

        yield console, world, each_method()


def _keep(
    methods: Iterable[FoundMethod],
    root: Path,
    kind: CheckKind,
    said: dict[str, tuple[bool, str]],
) -> None:
    """Keep what was found of methods, by their names."""
    tasks, commit = stages_of_flow("flows.post_training", root), revision_of(root).commit or ""
    checks = [
        KeptCheck(
            name, kind, passed, says, digest=digest_of_method(each.method, tasks), commit=commit
        )
        for each in methods
        if (name := each.method.name) in said
        for passed, says in [said[name]]
    ]
    if checks:
        click.echo(f"kept in {keep_checks(root, checks).relative_to(root)}")


def _figures(compared: "Sequence[MethodGradients]") -> Iterator[str]:
    for found in compared:
        tokens, weights = (
            max(getattr(each, name) for each in found.errors) for name in ("tokens", "weights")
        )
        told = f"log-probabilities within {tokens:.0e}, weights within {weights:.0e}"
        formula = f" (formula of {found.formula})" * (found.formula != found.method)
        yield f"{found.section}: " * (len(compared) > 1) + told + formula


def _told_of_all(effects: Sequence[SwitchEffect]) -> tuple[bool, str]:
    """Whether what a method sets acts in every section of it, and how far it goes there."""
    whole = [each for each in effects if each.switch == ALL_OF_IT]
    told = [each.told.format(each.change) for each in whole]
    if len(whole) > 1:
        told = [f"{each.section}: {text}" for each, text in zip(whole, told, strict=True)]
    return all(each.acts for each in whole), "; ".join(told)


def _not_looked_at(name: str, error: NotInTinyWorldError) -> str:
    return f"[yellow]{name:<30}not looked at: {escape(str(error))}[/]"


def _effect_line(effect: SwitchEffect, *, first: bool) -> str:
    name = effect.method if first else ""
    change = "the rest needs it" if effect.change is None else f"{effect.change:>6.1%}"
    told = "" if effect.acts else "  [red]does nothing[/]"
    return f"[bold]{name:<30}[/]{escape(effect.place):<46}{change}{told}"


def _line(found: "MethodGradients", *, alone: bool) -> str:
    name = found.method if alone else f"{found.method} ({found.section})"
    if found.formula is None:
        return f"[yellow]{name:<30}no formula: nothing was compared[/]"
    numbers = "".join(f"{each.tokens:>10.1e}{each.weights:>10.1e}" for each in found.errors)
    also = f"  [dim]formula of {found.formula}[/]" if found.formula != found.method else ""
    differs = next((each.where for each in found.errors if not each.agree and each.where), "")
    told = next(
        (each.complaint for each in found.errors if each.complaint),
        f"another gradient: {differs}" if differs else "another gradient",
    )
    return f"{name:<30}{numbers}{also}" + ("" if found.agree else f"  [red]{told}[/]")


def _sentence(results: "Mapping[str, Sequence[MethodGradients]]") -> str:
    """Count the methods: each agrees if all that was compared of it does."""
    same = [name for name, found in results.items() if found and all(e.agree for e in found)]
    other = [name for name, found in results.items() if any(e.differ for e in found)]
    without = [name for name, found in results.items() if any(not e.formula for e in found)]
    beside = [name for name, found in results.items() if not found]
    told = (
        f"{len(same)} methods have the gradients of their formulas, {len(other)} are not shown to"
    )
    if without:
        told += f"; without a formula: {', '.join(without)} (docs/methods.md, Formulas)"
    if beside:
        told += f"; not looked at: {', '.join(beside)}"
    return told
