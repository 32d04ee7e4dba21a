"""A prompt and its completion, as texts or as messages."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from posttrain.data.formats.base import RawRow, RowFormat, is_text, plain_text
from posttrain.data.formats.forms import Conversation, Form, user_asks
from posttrain.data.formats.messages import is_spoken, spoken, tools_of


class PromptCompletionFormat(RowFormat):
    """Read a prompt and its completion; both are texts or lists of messages."""

    SOURCE = "TRL, 'Dataset formats': prompt-completion"
    FORM = Conversation
    NAMES: ClassVar[Mapping[str, Sequence[str]]] = {
        "prompt": ("prompt", "input", "query", "question"),
        "completion": ("completion", "response", "output"),
        "system": ("system", "system_prompt"),
        "tools": ("tools", "functions"),
    }
    NEEDED = frozenset({"prompt", "completion"})

    kind: Literal["prompt_completion"] = "prompt_completion"

    def fits(self, record: RawRow) -> bool:
        """Find texts or messages."""
        values = [self.value(record, name) for name in sorted(self.NEEDED)]
        return all(is_text(value) or is_spoken(value) for value in values)

    def convert(self, record: RawRow, where: str) -> Iterator[Form]:
        """Put the completion behind the prompt."""
        system = self.text(record, "system", where)
        tools = tools_of(self.value(record, "tools"), where)
        asked = conversation_up_to(self.value(record, "prompt"), f"{where}: prompt", system=system)
        completion = self.value(record, "completion")
        if is_spoken(completion):
            said = spoken(completion, where)
        else:
            self.text(record, "completion", where)
            said = [{"role": "assistant", "content": plain_text(completion, where)}]
        yield Conversation((*asked.messages, *said), tools)


def conversation_up_to(prompt: Any, what: str, *, system: str = "") -> Conversation:
    """Read a prompt that is a text or a list of messages.

    Args:
        prompt: As the file has it.
        what: File, line and column, for errors.
        system: System prompt, where the row has one beside it.

    Returns:
        The conversation up to the answer.

    Raises:
        UserError: It is neither.

    """
    if not is_spoken(prompt):
        return user_asks(plain_text(prompt, what), system)
    messages = spoken(prompt, what)
    if system and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    return Conversation(tuple(messages))
