"""Instructions as Dolly has them: instruction, context and response."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from posttrain.data.formats.alpaca import one_answer
from posttrain.data.formats.base import RawRow, RowFormat
from posttrain.data.formats.forms import Conversation, Form


class InstructionFormat(RowFormat):
    """Read an instruction, what it is about, and the response to it."""

    SOURCE = "Conover et al. 2023, Databricks Dolly"
    FORM = Conversation
    NAMES: ClassVar[Mapping[str, Sequence[str]]] = {
        "instruction": ("instruction",),
        "response": ("response", "completion", "answer"),
        "input": ("context", "input"),
        "system": ("system", "system_prompt"),
    }
    NEEDED = frozenset({"instruction", "response"})

    kind: Literal["instruction"] = "instruction"
    joint: str = "\n\n"
    """What stands between an instruction and what it is about."""

    def convert(self, record: RawRow, where: str) -> Iterator[Form]:
        """Join the instruction and what it is about to one question."""
        asked = [self.text(record, name, where) for name in ("instruction", "input")]
        yield one_answer(
            self.joint.join(filter(None, asked)),
            self.text(record, "response", where),
            system=self.text(record, "system", where),
        )
