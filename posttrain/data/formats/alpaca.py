"""Instructions as Alpaca has them: instruction, input and output."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from posttrain.data.formats.base import RawRow, RowFormat, as_list, plain_text
from posttrain.data.formats.forms import Conversation, Form
from posttrain.data.sources.columns import clipped
from posttrain.stage.errors import UserError


class AlpacaFormat(RowFormat):
    """Read instruction, input and output; the model's own chat template stands around them."""

    SOURCE = "Taori et al. 2023, Stanford Alpaca"
    FORM = Conversation
    NAMES: ClassVar[Mapping[str, Sequence[str]]] = {
        "instruction": ("instruction",),
        "output": ("output",),
        "input": ("input",),
        "system": ("system", "system_prompt"),
        "history": ("history",),
    }
    NEEDED = frozenset({"instruction", "output"})

    kind: Literal["alpaca"] = "alpaca"
    joint: str = "\n\n"
    """What stands between an instruction and its input."""

    def convert(self, record: RawRow, where: str) -> Iterator[Form]:
        """Join instruction and input to one question."""
        asked = [self.text(record, name, where) for name in ("instruction", "input")]
        yield one_answer(
            self.joint.join(filter(None, asked)),
            self.text(record, "output", where),
            system=self.text(record, "system", where),
            earlier=_earlier(self.value(record, "history"), where),
        )


def one_answer(
    prompt: str, answer: str, *, system: str = "", earlier: Sequence[tuple[str, str]] = ()
) -> Conversation:
    """Make a conversation of a question and its answer.

    Args:
        prompt: What the user asks.
        answer: What the assistant says.
        system: System prompt; empty for none.
        earlier: Questions and answers before.

    Returns:
        The conversation.

    """
    said = [("system", system)] if system else []
    for question, answered in (*earlier, (prompt, answer)):
        said += [("user", question), ("assistant", answered)]
    return Conversation(tuple({"role": role, "content": content} for role, content in said))


def _earlier(value: object, where: str) -> list[tuple[str, str]]:
    if value is None or value == "":
        return []
    rounds = as_list(value)
    if rounds is None or not all(isinstance(each, list) and len(each) == 2 for each in rounds):
        raise UserError(
            f"{where}: history must be a list of question and answer, got {clipped(value)}"
        )
    return [
        (plain_text(asked, f"{where}: history"), plain_text(said, f"{where}: history"))
        for asked, said in rounds
    ]
