"""The template that a model has."""

from typing import TYPE_CHECKING, Literal

from posttrain.data.chat_templates.base import Template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class OwnTemplate(Template):
    """Keep the chat template of the model; without one, a prompt is its text and a newline."""

    kind: Literal["own"] = "own"

    def chat_template(self, tokenizer: "PreTrainedTokenizerBase") -> str | None:
        """Return what the tokenizer has."""
        template: str | None = tokenizer.chat_template
        return template
