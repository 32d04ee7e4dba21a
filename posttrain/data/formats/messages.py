"""Conversations as chat templates and most interfaces take them: role and content."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from posttrain.data.contexts import THINKING, THOUGHT, Message
from posttrain.data.formats.base import RawRow, RowFormat, as_list, plain_text
from posttrain.data.formats.forms import Conversation, Form
from posttrain.data.sources.columns import clipped
from posttrain.stage.errors import UserError, nearest

_ROLES: Mapping[str, str] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
"""Role of a message -> the one that chat templates know."""


class MessagesFormat(RowFormat):
    """Read a list of messages with role and content, and tools where they are."""

    SOURCE = "OpenAI chat completions; transformers, 'Chat templates'"
    FORM = Conversation
    NAMES: ClassVar[Mapping[str, Sequence[str]]] = {
        "messages": ("messages", "conversations", "conversation", "chat", "dialog"),
        "tools": ("tools", "functions"),
        "system": ("system", "system_prompt"),
    }
    NEEDED = frozenset({"messages"})

    kind: Literal["messages"] = "messages"

    def fits(self, record: RawRow) -> bool:
        """Find a list of messages."""
        return is_spoken(self.value(record, "messages"))

    def convert(self, record: RawRow, where: str) -> Iterator[Form]:
        """Convert the messages and the tools of a row."""
        messages = spoken(self.value(record, "messages"), where)
        system = self.text(record, "system", where)
        if system and (not messages or messages[0]["role"] != "system"):
            messages.insert(0, {"role": "system", "content": system})
        yield Conversation(tuple(messages), tools_of(self.value(record, "tools"), where))


def is_spoken(value: Any) -> bool:
    """Tell whether a value is a list of messages with a role each.

    Args:
        value: As the file has it.

    Returns:
        True also for such a list that is written as JSON.

    """
    listed = as_list(value)
    return bool(listed) and all(
        isinstance(each, Mapping) and "role" in each for each in listed or ()
    )


def spoken(value: Any, where: str) -> list[Message]:
    """Read a list of messages.

    Args:
        value: As the file has it: objects with role, content and tool_calls.
        where: File and line, for errors.

    Returns:
        The messages by the roles of chat templates; calls of tools have their arguments as objects.

    Raises:
        UserError: It is no such list, or a message has another role or no text.

    """
    listed = as_list(value)
    if listed is None:
        raise UserError(f"{where}: messages must be a list of objects, got {clipped(value)}")
    return [_message(each, f"{where}: message {number}") for number, each in enumerate(listed, 1)]


def tools_of(value: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    """Read the tools that may be called.

    Args:
        value: A list of JSON schemas, or JSON of one; nothing for none.
        where: File and line, for errors.

    Returns:
        The schemas, each within `{"type": "function", "function": ...}` as templates take them.

    Raises:
        UserError: It is something else.

    """
    if value is None or value == "":
        return ()
    listed = as_list(value)
    if listed is None or not all(isinstance(each, Mapping) for each in listed):
        raise UserError(f"{where}: tools must be a list of JSON schemas, got {clipped(value)}")
    stated = [_without_nulls(each) for each in listed]
    return tuple(
        each if "function" in each else {"type": "function", "function": each} for each in stated
    )


def _message(value: Any, where: str) -> Message:
    if not isinstance(value, Mapping) or "role" not in value:
        raise UserError(f"{where} must be an object with role and content, got {clipped(value)}")
    role = _ROLES.get(str(value["role"]))
    if role is None:
        known = nearest(str(value["role"]), _ROLES) or f"; there are {', '.join(_ROLES)}"
        raise UserError(f"{where} has the role {clipped(value['role'])}{known}")
    content = value.get("content")
    if isinstance(content, list):
        content = "".join(_words(part, where) for part in content)
    text = plain_text(content, f"{where}: content")
    thought = plain_text(value.get("reasoning_content"), f"{where}: reasoning_content")
    if thought and role == "assistant":
        text = f"{THINKING}\n{thought}\n{THOUGHT}\n\n{text}"
    message: dict[str, Any] = {"role": role, "content": text}
    if not bears_loss(value.get("weight"), where):
        message["weight"] = 0
    calls = value.get("tool_calls") or ([call] if (call := value.get("function_call")) else [])
    if calls:
        message["tool_calls"] = [_call(call, where) for call in as_list(calls) or [calls]]
    return message


def bears_loss(value: Any, where: str) -> bool:
    """Read the weight of a message.

    Args:
        value: As the file has it.
        where: File, line and message, for errors.

    Returns:
        False for 0; True for 1, and where nothing is said.

    Raises:
        UserError: It is another number, or none.

    """
    if value is None or value in (0, 1):
        return value is None or bool(value)
    raise UserError(f"{where} has the weight {clipped(value)}; 1 bears loss, and 0 does not")


def _words(part: Any, where: str) -> str:
    """The text of one part of a content that comes in parts."""
    if isinstance(part, Mapping) and part.get("type") == "text":
        return plain_text(part.get("text"), f"{where}: text")
    raise UserError(f"{where} holds {clipped(part)}; only text can be learned here")


def _call(value: Any, where: str) -> Mapping[str, Any]:
    """One call of a tool, with its arguments as an object: a template writes them as JSON again."""
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: a call of a tool must be an object, got {clipped(value)}")
    call = _without_nulls(value)
    if "function" not in call:
        call = {"type": "function", "function": call}
    function = dict(call["function"])
    if isinstance(function.get("arguments"), str):
        try:
            function["arguments"] = json.loads(function["arguments"])
        except ValueError:
            raise UserError(
                f"{where}: the arguments of a call are no JSON: {clipped(function['arguments'])}"
            ) from None
    return {**call, "function": function}


def _without_nulls(value: Any) -> Any:
    """Leave out what a table with one schema for all rows fills up with nulls."""
    if isinstance(value, Mapping):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(each) for each in value]
    return value
