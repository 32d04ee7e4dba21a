"""A call at the end of a turn, such as `calculate(12 * 34)`, and what a tool answers to it."""

import re
from collections.abc import Container, Mapping

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Ask,
    EpisodeState,
    Situation,
    Told,
)

WORD = re.compile(r"\b(\w+)\(")
"""Opens a call of a tool whose name is one word."""


def last_call(
    text: str, names: Container[str], *, opens: re.Pattern[str] = WORD, also_unknown: bool = False
) -> tuple[str, str] | None:
    """Find the call that a turn ends with.

    >>> last_call("f(x) is add(1, 2)", {"add"}), last_call("mul(2, 3)", {"add"})
    (('add', '1, 2'), None)

    Args:
        text: Of the turn.
        names: Of the tools.
        opens: Finds a name, its group, and the parenthesis behind it.
        also_unknown: Take what fills the last line as a call of a tool would, where none is one.

    Returns:
        What is called last in the last line, and what stands between the parentheses; None where
        the turn ends otherwise.

    """
    line = text.rstrip().rpartition("\n")[2].strip()
    if not line.endswith(")"):
        return None
    found = list(opens.finditer(line))
    last = next((each for each in reversed(found) if each[1] in names), None)
    if last is None and also_unknown and found and found[0].start() == 0:
        last = found[0]
    return last and (last[1], line[last.end() : -1])


def tool_answered(
    state: EpisodeState,
    text: str,
    *,
    name: str,
    author: str,
    facts: Mapping[str, float],
    read: tuple[str, ...] = (),
) -> Situation:
    """Tell the policy what a tool said, and ask it again.

    Args:
        state: Of the episode.
        text: What the tool said.
        name: Of the tool.
        author: `tool`, or `user` for a chat template that knows no tools.
        facts: What is counted of the call.
        read: Ids of the rows that were shown.

    Returns:
        Where the episode stands.

    """
    who = f"tool:{name}" if author == "tool" else author
    return Situation(state, (Ask(POLICY, (Told(who, text),)),), facts=facts, read=read)
