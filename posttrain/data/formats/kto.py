"""Answers that somebody found good or bad, each by itself."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from posttrain.data.formats.base import RawRow, RowFormat, is_text, plain_text
from posttrain.data.formats.forms import Form, LabeledCompletion
from posttrain.data.formats.messages import is_spoken, spoken
from posttrain.data.formats.prompt_completion import conversation_up_to
from posttrain.data.sources.columns import clipped
from posttrain.stage.errors import UserError

_LABELS: Mapping[str, bool] = {
    "true": True,
    "1": True,
    "1.0": True,
    "false": False,
    "0": False,
    "0.0": False,
}
"""A label as tables spell it, in small letters -> whether the answer is good."""


class KtoFormat(RowFormat):
    """Read a prompt, one completion, and whether it is good; texts or messages."""

    SOURCE = "TRL, 'Dataset formats': unpaired preference; Ethayarajh et al. 2024 (KTO)"
    FORM = LabeledCompletion
    NAMES: ClassVar[Mapping[str, Sequence[str]]] = {
        "prompt": ("prompt", "input", "query", "question"),
        "completion": ("completion", "response", "output"),
        "label": ("label", "kto_tag", "desirable", "thumbs_up"),
        "system": ("system", "system_prompt"),
    }
    NEEDED = frozenset({"prompt", "completion", "label"})

    kind: Literal["kto"] = "kto"

    def fits(self, record: RawRow) -> bool:
        """Find texts or messages, and a label that says yes or no."""
        values = [self.value(record, name) for name in ("prompt", "completion")]
        spelled = str(self.value(record, "label")).lower()
        return spelled in _LABELS and all(is_text(each) or is_spoken(each) for each in values)

    def convert(self, record: RawRow, where: str) -> Iterator[Form]:
        """Read the label of an answer."""
        label = self.value(record, "label")
        good = _LABELS.get(str(label).strip().lower())
        if good is None:
            raise UserError(f"{where}: label must be true or false, got {clipped(label)}")
        asked = conversation_up_to(
            self.value(record, "prompt"),
            f"{where}: prompt",
            system=self.text(record, "system", where),
        )
        yield LabeledCompletion(asked, self._answer(record, where), good)

    def _answer(self, record: RawRow, where: str) -> str:
        value: Any = self.value(record, "completion")
        if not is_spoken(value):
            return self.text(record, "completion", where)
        said = spoken(value, f"{where}: completion")
        if len(said) != 1 or said[0]["role"] != "assistant" or not said[0]["content"]:
            raise UserError(f"{where}: completion must be one answer of the assistant in words")
        return plain_text(said[0]["content"], where)
