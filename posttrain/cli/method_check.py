"""`posttrain method check`: what switches do, how far gradients are off, and the record of both."""

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from posttrain.methods.find import FoundMethod
from posttrain.operations.method_check import ALL_OF_IT, NOTHING, SwitchEffect, switch_effects
from posttrain.operations.tiny_world import NotInTinyWorldError, TinyWorld, make_tiny_world
from posttrain.pipeline.check_code import CheckKind
from posttrain.pipeline.method_checks import keep_checks, made_check
from posttrain.pipeline.recipe_schema import stages_of_flow
from posttrain.provenance.git import revision_of
from posttrain.stage.formatting import counted

if TYPE_CHECKING:
    from posttrain.operations.gradients.check import MethodGradients

_HEAD = f"{'method':<30}{'set back to its default':<46}how far the result moves"
_OF_WEIGHTS = f"""\
% of training: largest difference of a weight between the two models, as a share of how far two\
 steps took the weight that they took farthest. 0% is the very same model, 100% as far apart as\
 all that was learned, 200% as if it had learned the opposite; more is farther still. Up to\
 {NOTHING:.1%} it does nothing."""
_OF_FIGURES = f"""\
% of figures: nothing is learned there. Of an evaluation, the share of its figures that are others\
 with it set back; of a diagnosis, the share that are others where nothing was trained. Up to\
 {NOTHING:.1%} it does nothing."""
_NEEDED = "the rest needs it: what else is set is refused without it, so that nothing was compared."
_NO_STRENGTH = """\
That a switch acts is all that this shows. How much it acts in a training of real size, and whether\
 it helps, no figure here says: that is what claims are for."""

_GRADIENTS_HEAD = (
    f"{'method':<30}{'log-probs':>11}{'weights':>11}{'log-probs':>11}{'weights':>11}\n"
    f"{'':<30}{'(float64)':>11}{'(float64)':>11}{'(float32)':>11}{'(float32)':>11}"
)


def check_switches(methods: Sequence[FoundMethod], root: Path) -> list[str]:
    """Print what the switches of each method do as it ends, and keep whether it does anything.

    Args:
        methods: Those to look at.
        root: The project, whose file of checks this goes into.

    Returns:
        Names of those that do nothing as a whole.

    """
    said: dict[str, tuple[bool, str]] = {}
    shown: list[SwitchEffect] = []
    with _looking(methods, root) as (console, world, each_method, begins):
        console.print(f"[bold]{_HEAD}[/]", soft_wrap=True)
        for found in each_method:
            name = found.method.name
            effects: list[SwitchEffect] = []
            try:
                for effect in switch_effects(found.method, world, begins):
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
            shown += effects
    for line in _legend(shown):
        console.print(line, markup=False)
    idle = sum(not each.acts for each in shown)
    switches = "switch" if len(shown) == 1 else "switches"
    console.print(
        f"{counted(len(said), 'method')}; {idle} of {len(shown)} {switches}"
        f" {'does' if idle == 1 else 'do'} nothing in two steps of a tiny model."
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
    with _looking(methods, root) as (console, world, each_method, _):
        console.print(f"[bold]{_GRADIENTS_HEAD}[/]", soft_wrap=True)
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
    if any(each.errors for sections in results.values() for each in sections):
        console.print(_gradients_legend())
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
) -> Iterator[tuple[Console, TinyWorld, Iterator[FoundMethod], Callable[[str], None]]]:
    """Give what prints the table, a tiny world, methods one by one, and whom to tell what runs.

    Whose turn it is stands on stderr: in a bar on a terminal, a plain line for each elsewhere.
    """
    with _progress(len(methods)) as (console, turn, begins):
        turn("a tiny policy and its problems", 0)
        import torch

        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder:
            world = make_tiny_world(Path(folder), stages_of_flow("flows.post_training", root))

            def each_method() -> Iterator[FoundMethod]:
                for number, found in enumerate(methods, 1):
                    turn(found.method.name, number)
                    yield found

            yield console, world, each_method(), begins


@contextmanager
def _progress(
    total: int,
) -> Iterator[tuple[Console, Callable[[str, int], None], Callable[[str], None]]]:
    """Show on stderr what runs; give also what prints beside it, on stdout."""
    table = Console(highlight=False)
    if not sys.stderr.isatty():

        def tell(name: str, number: int) -> None:
            place = f" ({number} of {total})" if number else ""
            click.echo(f"running: {name}{place}", err=True)

        yield table, tell, lambda _: None
        return
    aside = Console(stderr=True, highlight=False)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[runs]}[/]"),
        console=aside,
        transient=True,
        # What goes into a file or a pipe has nothing to do with the bar.
        redirect_stdout=False,
    )
    with bar:
        shown = bar.add_task("", total=total, runs="")

        def turn(name: str, number: int) -> None:
            bar.update(shown, description=name, completed=max(0, number - 1), runs="")

        # On one terminal lines go above the bar, which only its own console knows how to do.
        yield (
            aside if sys.stdout.isatty() else table,
            turn,
            lambda what: bar.update(shown, runs=escape(what)),
        )


def _keep(
    methods: Iterable[FoundMethod],
    root: Path,
    kind: CheckKind,
    said: dict[str, tuple[bool, str]],
) -> None:
    """Keep what was found of methods, by their names."""
    commit = revision_of(root).commit or ""
    checks = [
        made_check(each, kind, root, passed=passed, says=says, commit=commit)
        for each in methods
        if each.method.name in said
        for passed, says in [said[each.method.name]]
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
    share = "training" if effect.is_of_weights else "figures"
    change = "the rest needs it" if effect.change is None else f"{effect.change:>7.1%} of {share}"
    told = "" if effect.acts else "  [red]does nothing[/]"
    return f"[bold]{name:<30}[/]{escape(effect.place):<46}{change}{told}"


def _legend(effects: Sequence[SwitchEffect]) -> Iterator[str]:
    """Say in plain words what the figures mean that are there."""
    compared = [each for each in effects if each.change is not None]
    if any(each.is_of_weights for each in compared):
        yield _OF_WEIGHTS
    if any(not each.is_of_weights for each in compared):
        yield _OF_FIGURES
    if len(compared) < len(effects):
        yield _NEEDED
    if effects:
        yield _NO_STRENGTH


def _gradients_legend() -> str:
    """Say in plain words what the figures of gradients mean."""
    import torch

    from posttrain.operations.gradients.compare import TOKENS, WEIGHTS

    fine, coarse = WEIGHTS[torch.float64], WEIGHTS[torch.float32]
    return (
        "Each figure is how far the stage's gradient lies from the formula's, as a share of the"
        " gradient's length: 0 is the same, 1 is as far off as it is long. log-probs is that with"
        " respect to the log-probability of each token, weights that with respect to the weights,"
        f" in float64 and in float32. What rounding makes, and passes, is up to {TOKENS:.0e} of"
        f" log-probs, and of weights {fine:.0e} in float64 and {coarse:.0e} in float32."
    )


def _line(found: "MethodGradients", *, alone: bool) -> str:
    name = found.method if alone else f"{found.method} ({found.section})"
    if found.formula is None:
        return f"[yellow]{name:<30}no formula: nothing was compared[/]"
    numbers = "".join(f"{each.tokens:>11.1e}{each.weights:>11.1e}" for each in found.errors)
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
    one = len(same) == 1
    have = "has the gradients of its formula" if one else "have the gradients of their formulas"
    are = "is" if len(other) == 1 else "are"
    told = f"{counted(len(same), 'method')} {have}, {len(other)} {are} not shown to"
    if without:
        told += f"; without a formula: {', '.join(without)} (docs/methods.md, Formulas)"
    if beside:
        told += f"; not looked at: {', '.join(beside)}"
    return told
