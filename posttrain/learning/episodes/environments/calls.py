"""A call at the end of a turn, such as `calculate(12 * 34)`, and what a tool answers to it."""

import json
import re
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Ask,
    EpisodeState,
    Situation,
    Told,
)

if TYPE_CHECKING:
    from posttrain.backends.mcp.session import Tool

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


def arguments_of(tool: "Tool", text: str) -> dict[str, Any]:
    """Read what stands between the parentheses of a call.

    Args:
        tool: That is called.
        text: A JSON object, JSON values in the order of its parameters, or plain text for the one
            text that it takes.

    Returns:
        Arguments by name.

    Raises:
        ValueError: It is neither, or more than the tool takes; with what the policy is told.

    """
    takes = f"{tool.name}({', '.join(tool.parameters)})"
    try:
        values = json.loads(f"[{text}]")
    except ValueError:
        if len(tool.parameters) == 1 and tool.texts:
            return {tool.parameters[0]: text.strip()}
        raise ValueError(f"no JSON: {takes}") from None
    except RecursionError:
        raise ValueError(f"no JSON: {takes}") from None
    if len(values) == 1 and isinstance(values[0], dict):
        return dict(values[0])
    if len(values) > len(tool.parameters):
        raise ValueError(f"too many values: {takes}")
    named = dict(zip(tool.parameters, values, strict=False))
    if len(tool.parameters) == 1 and tool.texts:
        # `search(1999)` of a tool that takes a text means the text.
        plain = text.strip()
        return {name: each if isinstance(each, str) else plain for name, each in named.items()}
    return named


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
