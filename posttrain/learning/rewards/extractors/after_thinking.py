"""The answer of a thinking model stands behind what it thought."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, WithJsonSchema

from posttrain.learning.rewards.extractors.base import Extractor
from posttrain.learning.rewards.extractors.marker import MarkerAnswer
from posttrain.stage.slots import InSlot


def _another(value: Any) -> Extractor:
    return InSlot("extractor").slot.parse(value)  # type: ignore[no-any-return]


# No place of the slot itself, whose schema would then hold itself.
_Another = Annotated[
    SerializeAsAny[Extractor],
    BeforeValidator(_another),
    WithJsonSchema({"type": ["string", "object"]}),
]


class AfterThinkingAnswer(Extractor):
    """Read another extractor's answer behind the last closing tag, such as </think>.

    What a model says to itself is no answer: a text that was cut off while thinking states none.
    """

    SOURCE = "DeepSeek-R1, arXiv:2501.12948, table 1; Qwen3, arXiv:2505.09388, section 4.3"

    kind: Literal["after_thinking"] = "after_thinking"
    answer: _Another = MarkerAnswer()
    """Where the answer stands in what is left: a kind's name, or a mapping with its settings."""
    tag: str = Field(default="think", pattern=r"^[A-Za-z][\w.:-]*$")
    """Name of the tag, without its brackets."""
    closed: bool = True
    """A text without the closing tag states no answer, as where the prompt opens the tag; false
    reads such a text whole, unless it opens the tag itself: for models that need not think."""

    def extract(self, text: str) -> str | None:
        """Look behind the last closing tag; see `Extractor.extract`."""
        _, thought, behind = text.rpartition(f"</{self.tag}>")
        if not thought and (self.closed or f"<{self.tag}>" in text):
            return None
        return self.answer.extract(behind)

    def reference(self, answer: str) -> str:
        """Read the problem's answer as the other extractor does; see `Extractor.reference`."""
        return self.answer.reference(answer)

    def place(self) -> str:
        """Name the tag and the other's place."""
        return f"{self.answer.place()}, behind </{self.tag}>"
