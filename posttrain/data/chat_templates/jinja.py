"""A template that the recipe writes out."""

from typing import TYPE_CHECKING, Literal

from posttrain.data.chat_templates.base import Template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class JinjaTemplate(Template):
    """Take the Jinja text that stands in the recipe, in the form of transformers."""

    SOURCE = "transformers, 'Chat templates'"

    kind: Literal["jinja"] = "jinja"
    text: str
    """Jinja over `messages`, `add_generation_prompt`, `bos_token` and `eos_token`."""

    def chat_template(self, tokenizer: "PreTrainedTokenizerBase") -> str:  # noqa: ARG002
        """Return the text."""
        return self.text
