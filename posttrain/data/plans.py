"""Plans: what a script does first, as it is told to somebody who is to do it."""

from collections.abc import Sequence

FIRST_MOVES = 2
"""Moves of a plan, where nobody says how many."""


def plan_of(said: Sequence[tuple[str, str]], *, moves: int = FIRST_MOVES) -> str:
    """Tell the first moves of an episode, but never the last, which is the answer.

    >>> plan_of([("assistant", "day?"), ("user", "fri"), ("assistant", "book fri")])
    'plan: day?'

    Args:
        said: Who said what in it, in order; who is told the plan is `assistant`.
        moves: At most so many.

    Returns:
        A line; empty where there is one move alone.

    """
    own = [text.strip() for author, text in said if author == "assistant"]
    told = own[: min(moves, len(own) - 1)]
    return f"plan: {' then '.join(told)}" if told else ""


def told_behind(after: str, text: str) -> str:
    """Put guidance behind a prompt, and behind what already stands there.

    Args:
        after: The `after` of the problem's context.
        text: What is told.

    Returns:
        The `after` of the problem that is told it.

    """
    return "\n".join(filter(None, [after, text]))
