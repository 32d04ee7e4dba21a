"""A long document as several pages of the site: one for each of its sections of a kind."""

import re
from collections.abc import Mapping
from typing import NamedTuple

_HEADING = re.compile(r"^(#+) (.*)$")
_FENCE = ("```", "~~~")


class SplitDocument(NamedTuple):
    """What remains of a document, and what became pages of their own."""

    rest: str
    """The document, with a list of the sections in their place."""
    sections: Mapping[str, str]
    """Anchor that a section had -> its Markdown, headings one level higher."""


def split(text: str, begins: str, folder: str) -> SplitDocument:
    """Take the sections out of a document whose headings begin alike.

    Args:
        text: Markdown.
        begins: How the headings of these sections begin, such as `To add`; they are of level 2.
        folder: Of the sections' pages, seen from the document's page.

    Returns:
        The rest and the sections.

    """
    rest: list[str] = []
    sections: dict[str, list[str]] = {}
    into, fenced = rest, False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith(_FENCE)
        heading = None if fenced else _HEADING.match(line)
        if heading and len(heading[1]) <= 2:
            into = rest
            if heading[1] == "##" and heading[2].startswith(begins):
                anchor = anchor_of(heading[2])
                into = sections[anchor] = []
                rest.append(f"- [{heading[2]}]({folder}/{anchor}.md)")
            elif sections and rest[-1].startswith("- ["):
                rest.append("")
        into.append(line[1:] if heading and into is not rest else line)
    return SplitDocument("\n".join(rest), {name: "\n".join(own) for name, own in sections.items()})


def anchor_of(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
