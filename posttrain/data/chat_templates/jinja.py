"""A template that the recipe writes out."""

from typing import TYPE_CHECKING, Literal

from pydantic import field_validator

from posttrain.data.chat_templates.base import Template, complaint_about

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class JinjaTemplate(Template):
    """Take the Jinja text that stands in the recipe, in the form of transformers."""

    SOURCE = "transformers, 'Chat templates'"

    kind: Literal["jinja"] = "jinja"
    text: str
    """Jinja over `messages`, `add_generation_prompt`, `bos_token` and `eos_token`."""

    @field_validator("text")
    @classmethod
    def _renders(cls, text: str) -> str:
        if complaint := complaint_about(text):
            raise ValueError(f"this template {complaint}")
        return text

    def chat_template(self, tokenizer: "PreTrainedTokenizerBase") -> str:  # noqa: ARG002
        """Return the text."""
        return self.text
