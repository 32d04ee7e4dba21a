"""Control characters of texts that others wrote: a terminal would obey them."""


def printable(text: str, *, kept: str = "") -> str:
    r"""Escape what ends a line or moves the cursor.

    >>> print(printable("a\x1b[2J\nb"), printable("a\nb", kept="\n"), sep="|")
    a\x1b[2J\nb|a
    b

    Args:
        text: Such as the name of a file, or what a policy drew.
        kept: Characters that stay as they are.

    Returns:
        The text, of which nothing is obeyed.

    """
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode()
        for each in text
    )
