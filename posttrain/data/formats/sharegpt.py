"""Conversations as ShareGPT has them: from and value."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from posttrain.data.contexts import Message
from posttrain.data.formats.base import RawRow, RowFormat, as_list, plain_text
from posttrain.data.formats.forms import Conversation, Form
from posttrain.data.formats.messages import bears_loss, spoken, tools_of
from posttrain.data.sources.columns import clipped
from posttrain.stage.errors import UserError, nearest

_SPEAKERS: Mapping[str, str] = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "system": "system",
    "observation": "tool",
    "tool": "tool",
}
"""Speaker -> role of chat templates."""
_CALL = "function_call"


class ShareGptFormat(RowFormat):
    """Read a list of messages with from (human, gpt, system, function_call, ...) and value."""

    SOURCE = "lm-sys/FastChat and hiyouga/LLaMA-Factory, 'sharegpt'"
    FORM = Conversation
    NAMES: ClassVar[Mapping[str, Sequence[str]]] = {
        "conversations": ("conversations", "conversation", "messages"),
        "tools": ("tools", "functions"),
        "system": ("system", "system_prompt"),
    }
    NEEDED = frozenset({"conversations"})

    kind: Literal["sharegpt"] = "sharegpt"

    def fits(self, record: RawRow) -> bool:
        """Find a list of objects with from and value."""
        listed = as_list(self.value(record, "conversations"))
        return bool(listed) and all(
            isinstance(each, Mapping) and {"from", "value"} <= each.keys() for each in listed or ()
        )

    def convert(self, record: RawRow, where: str) -> Iterator[Form]:
        """Convert the messages and the tools of a row."""
        listed = as_list(self.value(record, "conversations"))
        if listed is None:
            raise UserError(f"{where}: conversations must be a list of objects with from and value")
        messages = [
            _message(each, f"{where}: message {number}") for number, each in enumerate(listed, 1)
        ]
        system = self.text(record, "system", where)
        if system and (not messages or messages[0]["role"] != "system"):
            messages.insert(0, {"role": "system", "content": system})
        yield Conversation(tuple(messages), tools_of(self.value(record, "tools"), where))


def _message(value: Any, where: str) -> Message:
    if not isinstance(value, Mapping) or not {"from", "value"} <= value.keys():
        raise UserError(f"{where} must be an object with from and value, got {clipped(value)}")
    speaker = str(value["from"])
    if speaker == _CALL:
        call = {"role": "assistant", "content": "", "tool_calls": f"[{value['value']}]"}
        calls = as_list(call["tool_calls"])
        if calls is None:
            raise UserError(f"{where}: a function_call must be JSON, got {clipped(value['value'])}")
        return spoken([{**call, "tool_calls": calls}], where)[0]
    if speaker not in _SPEAKERS:
        known = nearest(speaker, [*_SPEAKERS, _CALL]) or f"; there are {', '.join(_SPEAKERS)}"
        raise UserError(f"{where} is from {clipped(speaker)}{known}")
    text = plain_text(value["value"], f"{where}: value")
    weight = {} if bears_loss(value.get("weight"), where) else {"weight": 0}
    return {"role": _SPEAKERS[speaker], "content": text, **weight}
