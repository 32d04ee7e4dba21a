"""Pages of the command line: what `--help` of every verb says."""

from collections.abc import Iterator

import click

from docs.hooks.words import cell, table
from posttrain.cli.main import VERBS

_WIDTH = 96


def verb_pages() -> Iterator[tuple[str, str]]:
    """Write a page for each verb, and one that lists them.

    Yields:
        Place in the site and Markdown.

    """
    sections = []
    for title, verbs in VERBS.items():
        rows = [(f"[{name}]({name}.md)", cell(verb.help)) for name, verb in verbs.items()]
        sections.append(f"## {title}\n\n{table(('verb', 'does'), rows)}")
        for name, verb in verbs.items():
            blocks = "\n".join(_blocks(verb.load(), f"posttrain {name}", 1))
            yield f"reference/cli/{name}.md", blocks
    yield (
        "reference/cli/index.md",
        "# Command line\n\nEvery verb answers `--help` with what stands here.\n\n"
        + "\n".join(sections),
    )


def _blocks(command: click.Command, path: str, depth: int) -> Iterator[str]:
    context = click.Context(
        command, info_name=path, terminal_width=_WIDTH, help_option_names=["-h", "--help"]
    )
    yield f"{'#' * depth} {path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from _blocks(each, f"{path} {name}", depth + 1)
