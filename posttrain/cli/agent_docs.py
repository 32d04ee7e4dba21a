"""`posttrain agent-docs`: what a coding agent needs to work with a project, in a few pages."""

import ast
from collections.abc import Iterator
from importlib.resources import files

import click

from posttrain import __version__
from posttrain.cli.options import Documented


@click.command("agent-docs", cls=Documented)
def agent_docs() -> None:
    """Print what a coding agent needs to know, as Markdown of less than 4,000 words.

    Verbs, tasks, flows and the kinds of every slot are those of this installation, plug-ins of
    installed packages among them.

    Examples:
      posttrain agent-docs > AGENTS.md

    """
    click.echo(text_for_agents(), nl=False)


def text_for_agents() -> str:
    """Fill the text in with what this installation has."""
    from posttrain.pipeline.recipe_file import NO_STAGES

    text = files("posttrain.cli").joinpath("agent_docs.md.tmpl").read_text(encoding="utf-8")
    filled = {
        "version": __version__,
        "sections": ", ".join(sorted(NO_STAGES)),
        "example": files("posttrain.cli")
        .joinpath("agent_example.py.tmpl")
        .read_text("utf-8")
        .rstrip(),
        "verbs": "\n".join(_verbs()),
        "tasks": "\n".join(_tasks()),
        "flows": ", ".join(f"flows.{name}" for name, _ in _modules("flows")),
        "slots": "\n".join(_slots()),
    }
    for name, value in filled.items():
        text = text.replace(f"@{name}@", value)
    return text


def _verbs() -> Iterator[str]:
    from posttrain.cli.main import VERBS

    for title, section in VERBS.items():
        yield f"- {title}: " + "; ".join(
            f"`{name}` {verb.help[0].lower()}{verb.help[1:].rstrip('.')}"
            for name, verb in section.items()
        )


def _tasks() -> Iterator[str]:
    for name, said in _modules("tasks"):
        yield f"- `tasks.{name}`: {said}"


def _slots() -> Iterator[str]:
    from posttrain.pipeline.slots import offered_parts

    kinds: dict[str, list[str]] = {}
    for part in offered_parts((), ()):
        kinds.setdefault(part.slot, []).append(part.kind)
    for slot, offered in kinds.items():
        yield f"- {slot}: {', '.join(offered)}"


def _modules(package: str) -> Iterator[tuple[str, str]]:
    """Modules of a package that comes with posttrain, and the first line that each says of itself.

    They are read and not imported: a task imports what it computes with.
    """
    from posttrain.stage.installed import home

    for entry in sorted((home() / package).iterdir()):
        source = entry / "__init__.py" if entry.is_dir() else entry
        if entry.name.startswith("_") or source.suffix != ".py" or not source.is_file():
            continue
        said = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
        line = said.partition("\n")[0]
        yield entry.stem, line.partition(": ")[2] or line
