"""`posttrain plan --memory`: whether the stages of a recipe fit, as a table or as JSON."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape

from posttrain.cli.options import plain_table
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import bytesize

if TYPE_CHECKING:
    from rich.table import Table

    from posttrain.operations.memory_plan.plan import MemoryPlan, StageMemory
    from posttrain.pipeline.execution.session import Session

PROMPT_TOKENS = 512
"""Of the longest prompt, where nobody says."""

_ABREAST = 6
"""Stages in one table, so that it fits a terminal of 80 columns."""

_NOTE = (
    "Counted are the tensors of one process, with rows as long as max_length or, where that is"
    " auto, as a micro-batch. What CUDA takes itself and what its allocator cannot reuse comes on"
    " top: leave a tenth free."
)


@dataclass(frozen=True)
class MemoryQuestion:
    """What the options of `--memory` ask."""

    gpu: str | None = None
    """Memory of a GPU as it was written; None for this machine."""
    gpus: int = 1
    prompt_tokens: int = PROMPT_TOKENS
    """Of the longest prompt before an answer."""
    model_config: tuple[str, ...] = ()
    """Folders with the configs of models that are named at the hub: `STAGE=DIR`, or `DIR` for the
    stages that are not named."""
    as_json: bool = False


def memory_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--memory` and the options that belong to it, which fill a `MemoryQuestion`."""
    options = (
        click.option(
            "--memory", is_flag=True, help="Show what each stage takes at its peak, and if it fits."
        ),
        click.option("--gpu", metavar="SIZE", help="With --memory: into GPUs of this size (80GB)."),
        click.option(
            "--gpus",
            type=click.IntRange(min=1),
            default=1,
            help="With --gpu: how many there are [default: 1].",
        ),
        click.option(
            "--prompt-tokens",
            type=click.IntRange(min=1),
            default=PROMPT_TOKENS,
            help="With --memory: tokens of the longest prompt [default: 512].",
        ),
        click.option(
            "--model-config",
            multiple=True,
            metavar="[STAGE=]DIR",
            help="With --memory: folder with the config.json of a model that STAGE names at the hub"
            " (of all such models without STAGE); may be given several times.",
        ),
        click.option("--json", "as_json", is_flag=True, help="With --memory: print JSON."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def print_memory(session: "Session", question: MemoryQuestion) -> None:
    """Show what the stages of a recipe take at their peaks, and refuse those that do not fit.

    Args:
        session: Of the recipe.
        question: What they are to fit into, and in which form that is shown.

    Raises:
        UserErrors: A stage does not fit; each has a sentence with what would help.

    """
    from posttrain.operations.memory_plan.machine import named_machine, this_machine
    from posttrain.operations.memory_plan.models import ModelFinder
    from posttrain.operations.memory_plan.plan import plan_memory

    if question.gpu is None and question.gpus > 1:
        raise UserError("--gpus counts GPUs of one kind; say which with --gpu, as in --gpu 80GB")
    machine = (
        named_machine(question.gpu, question.gpus)
        if question.gpu
        else this_machine(session.recipe.run.device)
    )
    finder = ModelFinder(session.dag, session.workspace.output, given_configs(question, session))
    plan = plan_memory(session.dag, finder, machine, prompt_tokens=question.prompt_tokens)
    if question.as_json:
        click.echo(json.dumps(_described(plan), indent=1))
    else:
        for part in _shown(plan):
            Console().print(part)
        if len(finder.shared) > 1:
            click.echo(
                f"note: {' and '.join(finder.shared)} are counted by one config; give each its own"
                " with --model-config STAGE=DIR"
            )
    plan.refuse()


def given_configs(question: MemoryQuestion, session: "Session") -> dict[str, Path]:
    """Read where the configs of models at the hub are said to lie.

    Args:
        question: Says so.
        session: Of the recipe, which knows the stages.

    Returns:
        The folder by stage; that of all others by "".

    Raises:
        UserError: There is no such stage.

    """
    found = {}
    for given in question.model_config:
        stage, _, folder = given.rpartition("=")
        if stage and stage not in session.dag.stages:
            known = ", ".join(session.dag.stages)
            raise UserError(
                f"--model-config {given}: there is no stage {stage}; there are: {known}"
            )
        found[stage] = Path(folder)
    return found


def _shown(plan: "MemoryPlan") -> "Iterator[str | Table]":
    from posttrain.learning.memory.peak import PARTS

    if not plan.stages:
        yield "No stage of this recipe trains or samples."
        return
    yield f"What each stage takes at its peak, against {plan.machine.told()}:"
    used = [name for name in PARTS if any(each.peak.parts.get(name) for each in plan.stages)]
    for begin in range(0, len(plan.stages), _ABREAST):
        yield ""
        yield _table(plan.stages[begin : begin + _ABREAST], used)
    yield ""
    yield _legend(used)
    if any(each.checkpoint for each in plan.stages):
        yield ""
        yield _checkpoints(plan)
        yield from _over_budget(plan)
    yield f"\n[dim]{_NOTE}[/]"
    if plan.uncounted:
        yield f"Not counted: {escape(', '.join(plan.uncounted))}."


def _table(stages: "Sequence[StageMemory]", used: Sequence[str]) -> "Table":
    """A column a stage, whose parts add up to its peak."""
    names = [each.stage for each in stages]
    table = plain_table("", *names, right=names, unbroken=["", *names])
    for name in used:
        table.add_row(name, *(_size(each.peak.parts.get(name, 0)) for each in stages))
    table.add_row("[bold]peak[/]", *(f"[bold]{_size(each.peak.total)}[/]" for each in stages))
    if any(each.processes > 1 for each in stages):
        table.add_row("processes", *(f"each of {each.processes}" for each in stages))
    shares = (f"{each.peak.total / each.room:.0%}" for each in stages)
    table.add_row("of the room", *shares)
    verdicts = ("[green]fits[/]" if each.fits else "[red]does not fit[/]" for each in stages)
    table.add_row("", *verdicts)
    return table


def _legend(used: Sequence[str]) -> "Table":
    from posttrain.learning.memory.peak import PARTS

    table = plain_table("", "")
    table.show_header = False
    for name in used:
        table.add_row(name, f"[dim]{PARTS[name]}[/]")
    return table


def _checkpoints(plan: "MemoryPlan") -> "Table":
    """On disk, of the stages that train."""
    sizes = ("a checkpoint", "all that are kept", "the model it leaves")
    table = plain_table("on disk", *sizes, right=sizes)
    for each in plan.stages:
        if each.checkpoint is not None:
            found = each.checkpoint
            table.add_row(each.stage, *map(_size, (found.one, found.kept, found.result)))
    return table


def _over_budget(plan: "MemoryPlan") -> "Iterator[str]":
    for each in plan.stages:
        found = each.checkpoint
        if found is not None and found.kept and found.budget and found.one > found.budget:
            yield (
                f"note: {each.stage}.learner.checkpoints.budget is {bytesize(found.budget)}, less"
                f" than one checkpoint of {bytesize(found.one)}; the newest stays all the same"
            )


def _size(count: int) -> str:
    return bytesize(count) if count else "-"


def _described(plan: "MemoryPlan") -> dict[str, Any]:
    machine = plan.machine
    return {
        "device": machine.device,
        "capacity": machine.capacity,
        "devices": machine.count,
        "stages": [_stage(each) for each in plan.stages],
        "uncounted": list(plan.uncounted),
    }


def _stage(each: "StageMemory") -> dict[str, Any]:
    size = each.checkpoint
    return {
        "stage": each.stage,
        "processes": each.processes,
        "peak": each.peak.total,
        "moment": each.peak.name,
        "parts": {name: count for name, count in each.peak.parts.items() if count},
        "room": each.room,
        "fits": each.fits,
        "checkpoint": size and {"one": size.one, "kept": size.kept, "result": size.result},
        "savings": [
            {"setting": saving.told(each.stage), "saves": saving.saves} for saving in each.savings
        ],
        "peak_with_savings": each.with_savings or None,
    }
