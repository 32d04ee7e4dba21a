"""Rows of completions as a conversation."""

from collections.abc import Mapping
from typing import Any

from posttrain.data.contexts import PromptContext


def messages_of(row: Mapping[str, Any]) -> list[dict[str, str]]:
    """Lay a row out as messages.

    Args:
        row: Of COMPLETIONS: with `prompt` and `text`, and perhaps `context`.

    Returns:
        `role` and `content` of each message, the row's own text last.

    """
    asked = PromptContext.read(row.get("context") or "").messages(row["prompt"])
    told = [*asked, {"role": "assistant", "content": row["text"]}]
    return [{"role": str(each["role"]), "content": str(each["content"])} for each in told]
