"""Links between documents of the repository, made links between pages of the site."""

import posixpath
import re
from collections.abc import Callable, Mapping

_FENCE = re.compile(r"(^[ \t]*(?:```|~~~).*?^[ \t]*(?:```|~~~)[ \t]*$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def rewritten(
    text: str, file: str, page: str, pages: Mapping[str, str], address: Callable[[str], str | None]
) -> str:
    """Let the links of a document lead where its page can follow.

    Args:
        text: Markdown.
        file: Where the document stands in the repository.
        page: Where its page stands in the site.
        pages: File or folder of the repository, or a file's `#anchor` -> page or picture of the
            site.
        address: Gives a file's address where the site has no page of it; None for none.

    Returns:
        The text. A link to a file that has neither is its words alone.

    """

    def follow(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        path, _, anchor = target.partition("#")
        if ":" in path or not (path or anchor):
            return match.group()
        named = posixpath.normpath(posixpath.join(posixpath.dirname(file), path)) if path else file
        if (whole := f"{named}#{anchor}") in pages:
            named, anchor = whole, ""
        if named in pages:
            there = posixpath.relpath(pages[named], posixpath.dirname(page) or ".")
            return f"{picture}[{words}]({there}{'#' * bool(anchor)}{anchor})"
        found = address(named)
        return f"{picture}[{words}]({found})" if found else words

    return outside_of_code(text, lambda plain: _LINK.sub(follow, plain))


def outside_of_code(text: str, change: Callable[[str], str]) -> str:
    """Change a Markdown text where it is no code.

    Args:
        text: Markdown.
        change: Is given each piece between blocks of code.

    Returns:
        The text, its blocks as they were.

    """
    pieces = _FENCE.split(text)
    # A link's words may be code, so that only its target is looked at: `[` and `(` in code alone
    # make no link, as between them stands the end of the code.
    return "".join(each if at % 2 else change(each) for at, each in enumerate(pieces))
