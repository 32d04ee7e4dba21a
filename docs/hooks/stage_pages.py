"""Pages of stages, of slots and their parts, and of what a recipe says beside its stages."""

import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

from docs.hooks.field_tables import field_table
from docs.hooks.words import cell, code, paragraphs, table
from posttrain.operations.schedule.recipes import ScheduleConfig
from posttrain.pipeline.recipe import RunSettings
from posttrain.pipeline.slots import SLOTS, OfferedPart, find_slot, first_sentence, offered_parts
from posttrain.publishing.release.config import ReleaseConfig
from posttrain.stage.config import StageConfig
from posttrain.stage.declared import Declared
from posttrain.stage.resources import Resources
from posttrain.stage.schedule import ScheduledNumber
from posttrain.stage.spec import Port, Task

_OF_RECIPES: Mapping[str, tuple[type[StageConfig], str]] = {
    "run": (RunSettings, "run."),
    "resources (of `run`, or of a stage's section)": (Resources, "resources."),
    "release": (ReleaseConfig, "release."),
    "schedules (each under its name)": (ScheduleConfig, "schedules.NAME."),
    "declares (of the recipe, or of a stage's section)": (Declared, "declares."),
    "a number that changes while a stage runs": (ScheduledNumber, ""),
}
_WIDE = "---\nhide: [toc]\n---\n"
"""Of pages with three headings, whose tables are wide."""


def stage_pages(root: Path) -> Iterator[tuple[str, str]]:
    """Write a page for each task, and one that lists them.

    Args:
        root: The repository.

    Yields:
        Place in the site and Markdown.

    """
    listed = []
    for folder in sorted((root / "tasks").glob("*/config.py")):
        name = folder.parent.name
        module = import_module(f"tasks.{name}")
        yield f"reference/stages/{name}.md", _of_task(name, module.TASK, module.__doc__ or "")
        listed.append((f"[{name}]({name}.md)", cell(first_sentence(module.__doc__ or ""))))
    yield (
        "reference/stages/index.md",
        "# Stages\n\nEvery kind of stage that comes along: what it reads and makes, and each field"
        " of its section in a recipe. A task of your own is used like these"
        " ([tutorial](../../tutorials/own-stage.md)).\n\n" + table(("stage", "does"), listed),
    )


def _of_task(name: str, task: Task, said: str) -> str:
    fields = field_table(task.config, "", lambda slot: f"../parts/{slot}.md")
    notes = [
        "Several processes can share it (`resources.processes`)." * task.parallel,
        "A Ray cluster can share its work (`resources.ray`)." * task.on_ray,
    ]
    return "\n".join(
        [
            f"{_WIDE}# {name}\n",
            f"{paragraphs(said)}\n",
            " ".join(filter(None, notes)) + "\n",
            f"## Reads\n\n{_ports(task.inputs)}",
            f"## Makes\n\n{_ports(task.outputs)}",
            f"## Fields\n\nOf the section `{name}:`, or of any section with"
            f" `task: {task.package}`.\n\n{fields}",
        ]
    )


def _ports(ports: Mapping[str, Port]) -> str:
    rows = [
        (
            code(f"{name}{'.NAME' * port.many}"),
            code(port.type),
            "optional" * port.optional,
            cell(port.doc),
        )
        for name, port in ports.items()
    ]
    return table(("port", "kind", "", "what it is"), rows) or "Nothing.\n"


def part_pages() -> Iterator[tuple[str, str]]:
    """Write a page for each slot with the parts that ship, and one that lists the slots."""
    listed = []
    for slot in SLOTS:
        base = find_slot(slot).base
        parts = [each for each in offered_parts([slot], ()) if each.origin == "posttrain"]
        blocks = "\n".join(map(_of_part, parts))
        yield (
            f"reference/parts/{slot}.md",
            f"# {slot}\n\n{paragraphs(inspect.cleandoc(base.__doc__ or ''))}\n\n"
            f"On the command line: `posttrain parts {slot}`. One of your own:"
            f" [an example](../../extending/to-add-{_article(slot)}-{slot.replace('_', '-')}.md)."
            f"\n\n{blocks}",
        )
        purpose = cell(first_sentence(base.__doc__ or ""))
        listed.append((f"[{slot}]({slot}.md)", str(len(parts)), purpose))
    yield (
        "reference/parts/index.md",
        "# Slots and their parts\n\nA slot is a place in a recipe for one of several parts. A part"
        " is written as its kind (`sampler: uniform`), or as a mapping with a kind and values"
        " (`sampler: {kind: band, least: 0.2}`).\n\n" + table(("slot", "parts", "for"), listed),
    )


def _of_part(offered: OfferedPart) -> str:
    assert offered.part is not None
    source = f"\n\nSource: {cell(offered.source)}" if offered.source else ""
    docstring = inspect.cleandoc(offered.part.__doc__ or "").split("\n\n")
    said = paragraphs("\n\n".join(each for each in docstring if not each.startswith("Source: ")))
    fields = field_table(offered.part, "", lambda slot: f"{slot}.md")
    return f"## {offered.kind}\n\n{said}{source}\n\n{fields}"


def _article(slot: str) -> str:
    return "an" if slot[0] in "aeiou" else "a"


def recipe_page() -> str:
    """Write what a recipe may say beside the sections of its stages."""
    sections = []
    for name, (config, at) in _OF_RECIPES.items():
        said = paragraphs(inspect.cleandoc(config.__doc__ or ""))
        fields = field_table(config, at, lambda slot: f"parts/{slot}.md")
        sections.append(f"## {name}\n\n{said}\n\n{fields}")
    return (
        "# Recipes\n\nWhat `recipe.yaml` may say beside the [sections of its stages]"
        "(stages/index.md). `posttrain schema` prints all of it as a JSON schema, by which an"
        " editor completes and checks.\n\n" + "\n".join(sections)
    )
