"""The one error that a user is meant to see, and what its sentences are made of."""

import difflib
from collections.abc import Iterable
from pathlib import Path


class UserError(Exception):
    """Bad input, said in one sentence: what is wrong, where, and what to do about it.

    The command line prints the sentence and exits with code 2; nothing has been written by then.
    """


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return a ``; did you mean 'x'?`` suffix naming the closest candidate, or an empty string."""
    matches = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.5)
    return f"; did you mean '{matches[0]}'?" if matches else ""


def shown(path: Path) -> str:
    """Spell a file as a person in the present folder would name it.

    Args:
        path: An absolute path, or one from that folder.

    Returns:
        The path from the present folder where the file lies below it, else the path as it is.

    """
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
