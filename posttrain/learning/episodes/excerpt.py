"""How much of a text a policy is told that may be long: its beginning."""


def excerpt(text: str, most: int) -> str:
    """Give the beginning of a text; what is cut off is told by ` ...`.

    Halves of letters, which JSON of a server may have and no tokenizer reads, are question marks.

    >>> excerpt("one two", 7), excerpt("one two", 4)
    ('one two', 'one ...')

    Args:
        text: Any.
        most: Characters of it that are told.

    Returns:
        All of it, or so much with the dots behind.

    """
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= most else f"{text[:most].rstrip()} ..."
