"""How texts of code become Markdown: cells of tables, first sentences, whole docstrings."""

import re
from collections.abc import Iterable, Sequence

_IN_CODE = re.compile(r"(``.+?``|`[^`\n]+`)")
_MEANT_OTHERWISE = re.compile(r"([\\*<|\[\]])")


def cell(text: object) -> str:
    """A text in a table: one line, what Markdown would take for its own escaped outside of code."""
    pieces = _IN_CODE.split(" ".join(str(text).split()))
    return "".join(
        each if at % 2 else _MEANT_OTHERWISE.sub(r"\\\1", each) for at, each in enumerate(pieces)
    )


def paragraphs(text: str) -> str:
    """A docstring as Markdown: its paragraphs, and what is indented as blocks of text."""
    found = []
    for each in re.split(r"\n\s*\n", text.strip()):
        lines = each.splitlines()
        indented = all(line.startswith((" ", "\t")) for line in lines if line.strip())
        found.append(f"```text\n{each}\n```" if indented else cell(each))
    return "\n\n".join(found)


def code(text: object) -> str:
    """A value as code, with as many backticks as it takes."""
    said = str(text)
    ticks = "``" if "`" in said else "`"
    return f"{ticks}{said}{ticks}" if said else ""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, whose cells are Markdown already; empty where there is no row."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    head = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    return "\n".join([*head, *lines]) + "\n" if lines else ""
