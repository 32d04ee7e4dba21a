"""The one error that a user is meant to see."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input, said in one sentence: what is wrong, where, and what to do about it.

    The command line prints the sentence and exits with code 2; nothing has been written by then.
    """


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return a ``; did you mean 'x'?`` suffix naming the closest candidate, or an empty string."""
    matches = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.5)
    return f"; did you mean '{matches[0]}'?" if matches else ""
