"""`posttrain method check`: what switches do, how far gradients are off, and the record of both."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from posttrain.methods.find import FoundMethod
from posttrain.operations.method_check import (
    ALL_OF_IT,
    SwitchEffect,
    TinyWorld,
    make_tiny_world,
    switch_effects,
)
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
            for number, effect in enumerate(switch_effects(found.method, world)):
                console.print(_effect_line(effect, first=number == 0), soft_wrap=True)
                switches, idle = switches + 1, idle + (not effect.acts)
                if effect.switch == ALL_OF_IT:
                    before = said.get(name, (True, ""))[0]
                    told = f"without it weights move {effect.change or 0.0:.0%} of the way"
                    said[name] = (before and effect.acts, told)
    console.print(
        f"{len(said)} methods; {idle} of {switches} switches do nothing in two steps of a tiny"
        " model. A change is the largest of a weight, as a share of the largest that training made."
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

    results = []
    with _looking(methods, root) as (console, world, each_method):
        console.print(f"[bold]{_HEAD}[/]", soft_wrap=True)
        for found in each_method:
            results.append(method_gradients(found, world))
            console.print(_line(results[-1]), soft_wrap=True)
    console.print(_sentence(results))
    compared = {each.method: (each.agree, _figures(each)) for each in results if each.errors}
    _keep(methods, root, "gradients", compared)
    return [each.method for each in results if each.differ]


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


def _figures(found: "MethodGradients") -> str:
    tokens, weights = (
        max(getattr(each, name) for each in found.errors) for name in ("tokens", "weights")
    )
    formula = f" (formula of {found.formula})" * (found.formula != found.method)
    return f"log-probabilities within {tokens:.0e}, weights within {weights:.0e}{formula}"


def _effect_line(effect: SwitchEffect, *, first: bool) -> str:
    name = effect.method if first else ""
    change = "the rest needs it" if effect.change is None else f"{effect.change:>6.1%}"
    told = "" if effect.acts else "  [red]does nothing[/]"
    return f"[bold]{name:<30}[/]{escape(effect.switch):<46}{change}{told}"


def _line(found: "MethodGradients") -> str:
    if found.section is None:
        told = "nothing to compare: no RL or pairs, or further models are read"
        return f"[dim]{found.method:<30}{told}[/]"
    if found.formula is None:
        return f"[yellow]{found.method:<30}no formula: nothing was compared[/]"
    numbers = "".join(f"{each.tokens:>10.1e}{each.weights:>10.1e}" for each in found.errors)
    also = f"  [dim]formula of {found.formula}[/]" if found.formula != found.method else ""
    told = next((each.complaint for each in found.errors if each.complaint), "another gradient")
    return f"{found.method:<30}{numbers}{also}" + ("" if found.agree else f"  [red]{told}[/]")


def _sentence(results: "Sequence[MethodGradients]") -> str:
    same, other = sum(each.agree for each in results), sum(each.differ for each in results)
    without = [each.method for each in results if each.section and not each.formula]
    beside = [each.method for each in results if not each.section]
    told = f"{same} methods have the gradients of their formulas, {other} are not shown to"
    if without:
        told += f"; without a formula: {', '.join(without)} (docs/methods.md, Formulas)"
    if beside:
        told += f"; not looked at: {', '.join(beside)}"
    return told
